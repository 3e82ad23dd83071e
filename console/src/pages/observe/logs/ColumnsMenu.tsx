import { Columns3 } from 'lucide-react'
import { ROW_HEIGHT, setPrefs, usePrefs, type Density, type LogsPrefs } from '@/lib/prefs'
import { Button, Menu, MenuChoice, MenuItem, MenuLabel, MenuLine } from '@/ui'
import { isShown, type LogColumn } from './columns'

interface ColumnsMenuProps {
  columns: readonly LogColumn[]
  width: number
  prefs: LogsPrefs
  onChange(change: Partial<LogsPrefs>): void
}

/** Chooses columns and row height. A chosen column is always shown; the table scrolls sideways if need be. */
export function ColumnsMenu({ columns, width, prefs, onChange }: ColumnsMenuProps) {
  const { density } = usePrefs()
  return (
    <Menu trigger={<Button square aria-label="Columns and row height" title="Columns" icon={<Columns3 size={14} aria-hidden />} />}>
      <MenuLabel>Columns</MenuLabel>
      {columns.map((column) => {
        const shown = isShown(column, width, prefs.columns)
        return (
          <MenuChoice key={column.key} checked={shown} onSelect={() => onChange({ columns: { ...prefs.columns, [column.key]: !shown } })}>
            {column.header}
          </MenuChoice>
        )
      })}
      <MenuItem onSelect={() => onChange({ columns: {}, widths: {} })}>Reset columns and widths</MenuItem>
      <MenuLine />
      <MenuLabel>Row height</MenuLabel>
      {(Object.keys(ROW_HEIGHT) as Density[]).map((choice) => (
        <MenuChoice key={choice} checked={density === choice} onSelect={() => setPrefs({ density: choice })}>
          {choice}
        </MenuChoice>
      ))}
    </Menu>
  )
}
