// Runs before the first paint so that the chosen theme does not flash.
try { document.documentElement.dataset.theme = JSON.parse(localStorage.getItem('console.prefs')).theme } catch { /* the system's theme */ }
