import { TextInput } from "@mantine/core";
import { Search } from "lucide-react";
import { useEffect, useRef, useState } from "react";

interface Props {
  label: string;
  /** What the list is filtered by now. */
  value: string | undefined;
  onAsk: (value: string | undefined) => void;
}

/** How long typing rests before the list follows it (ms). */
const rest = 80;

/**
 * A field that filters a list while one types: a letter after a rest at once, what is typed
 * quickly when the typing rests. What was typed since is not lost when the list comes to
 * less of it; a filter that changes from outside (a link, the back button) is shown.
 */
export function FilterInput({ label, value = "", onAsk }: Props) {
  const [typed, setTyped] = useState(value);
  const asked = useRef<string[]>([]); // and not yet seen as the value
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const before = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    const at = asked.current.lastIndexOf(value);
    asked.current = at < 0 ? [] : asked.current.slice(at + 1);
    if (at < 0) setTyped(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (q: string) => {
    setTyped(q);
    clearTimeout(timer.current);
    const ask = () => {
      asked.current.push(q);
      onAsk(q || undefined);
    };
    const now = performance.now();
    if (now - before.current > rest) ask();
    else timer.current = setTimeout(ask, rest);
    before.current = now;
  };
  return (
    <TextInput
      data-search
      aria-label={label}
      placeholder={label}
      leftSection={<Search size={16} aria-hidden />}
      value={typed}
      onChange={(e) => type(e.currentTarget.value)}
      w={{ base: "100%", sm: 320 }}
    />
  );
}
