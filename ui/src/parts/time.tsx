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
  const [near, setNear] = useState(false);
  useEffect(() => {
    if (mode !== "relative") return;
    const timer = setInterval(() => tick((n) => n + 1), 5000);
    return () => clearInterval(timer);
  }, [mode]);
  if (at === null || at === undefined) return <span>–</span>;
  const ms = typeof at === "number" ? at : Date.parse(at);
  const date = new Date(ms);
  const text = (
    <time
      dateTime={Number.isNaN(date.getTime()) ? undefined : date.toISOString()}
      onPointerEnter={() => setNear(true)}
      onPointerLeave={() => setNear(false)}
    >
      {time(ms, mode, nodeNow())}
    </time>
  );
  // A page may have hundreds: a tooltip is made for the one that is looked at.
  return near ? (
    <Tooltip opened label={`${time(ms, "utc", 0)} · ${time(ms, "local", 0)} · ${ms}`}>
      {text}
    </Tooltip>
  ) : (
    text
  );
}
