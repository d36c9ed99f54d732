import { Tooltip } from "@mantine/core";
import { useEffect, useState } from "react";
import { timeMode } from "../app/prefs";
import { nodeNow } from "../app/session";
import { time } from "../lib/format";
import { useStore } from "../lib/store";

/** A time as the switch says, with both other forms in its tooltip. */
export function Time({ at }: { at: number | string | null | undefined }) {
  const mode = useStore(timeMode);
  const [, tick] = useState(0);
  useEffect(() => {
    if (mode !== "relative") return;
    const timer = setInterval(() => tick((n) => n + 1), 5000);
    return () => clearInterval(timer);
  }, [mode]);
  if (at === null || at === undefined) return <span>–</span>;
  const ms = typeof at === "number" ? at : Date.parse(at);
  const date = new Date(ms);
  return (
    <Tooltip label={`${time(ms, "utc", 0)} · ${time(ms, "local", 0)} · ${ms}`} events={{ hover: true, focus: false, touch: true }}>
      <time dateTime={Number.isNaN(date.getTime()) ? undefined : date.toISOString()}>{time(ms, mode, nodeNow())}</time>
    </Tooltip>
  );
}
