// The default theme without its web font: the site uses the fonts of the system, as the console does. A link leads back
// to the console, which is another application: `target` keeps the site's router from following it.
import { h } from 'vue'
import DefaultTheme from 'vitepress/theme-without-fonts'
import './style.css'

const toConsole = () => h('a', { href: '/console/', target: '_self', class: 'to-console' }, 'Console')

export default {
  extends: DefaultTheme,
  Layout: () => h(DefaultTheme.Layout, null, { 'nav-bar-content-after': toConsole, 'nav-screen-content-after': toConsole }),
}
