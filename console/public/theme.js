// Before the first paint, so that a chosen theme does not flash.
try { document.documentElement.dataset.theme = JSON.parse(localStorage.getItem('console.prefs')).theme } catch { /* the system's theme */ }
