/** Does a job in the console and counts the clicks that it takes. */
import assert from 'node:assert/strict'

/** The most presses of Tab that reach a field of a form. */
const MAX_TABS = 20

/**
 * Clicks and choices are counted. Text is typed into the field that has the focus, or that Tab reaches from there; a
 * click into a field counts like any other.
 */
export function countClicks(page) {
  let count = 0
  const steps = []
  const add = (step) => {
    count += 1
    steps.push(`${count}. ${step}`)
  }
  const isFocused = (field) => field.evaluate((element) => element === document.activeElement || element.contains(document.activeElement))
  return {
    get count() {
      return count
    },
    async click(target, step) {
      await target.click()
      add(step)
    },
    async choose(select, value, step) {
      await select.selectOption(value)
      add(step)
    },
    /** Types into a field that the keyboard reaches. */
    async type(field, text) {
      await field.waitFor()
      for (let tabs = 0; !(await isFocused(field)); tabs++) {
        assert.ok(tabs < MAX_TABS, `Tab does not reach ${field}`)
        await page.keyboard.press('Tab')
      }
      await page.keyboard.press('Control+a')
      await page.keyboard.insertText(text)
    },
    atMost(limit) {
      console.log(`${count} of at most ${limit} clicks: ${steps.join(', ')}`)
      assert.ok(count <= limit, `the job took ${count} clicks instead of ${limit}:\n${steps.join('\n')}`)
    },
  }
}
