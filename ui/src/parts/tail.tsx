import { Alert, Badge, Button, Group, Stack, Text } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { Pause, Play } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { idOf, previewBytes, type Rec, streamURL, tailURL } from "../api/records";
import { session, untilLoggedIn } from "../app/session";
import { useT } from "../i18n";
import type { Decoder } from "../lib/decode";
import { count } from "../lib/format";
import { Ring } from "../lib/ring";
import { LiveTail, type TailState } from "../lib/tail";
import { RecordTable } from "./recordTable";
import { Empty } from "./states";

/** Records kept in the browser. */
const kept = 2000;
/** The page is brought up to date so often, however many records come (ms). */
const beat = 120;

interface View {
  records: Rec[];
  total: number;
  rate: number;
}

interface Props {
  topic: string;
  q?: string;
  within?: string;
  decoder: Decoder;
  opened?: string;
  open: (id: string) => void;
}

/** New records as they come, newest first. Paused, it counts what came and shows it on Resume. */
export default function Tail({ topic, q, within, decoder, opened, open }: Props) {
  const t = useT();
  const ring = useRef(new Ring<Rec>(kept));
  const [view, setView] = useState<View>({ records: [], total: 0, rate: 0 });
  const [state, setState] = useState<{ state: TailState; why?: string }>({ state: "connecting" });
  const [pausedAt, setPausedAt] = useState<number | null>(null);
  const [total, setTotal] = useState(0);
  const paused = useRef(false);

  useEffect(() => {
    ring.current = new Ring<Rec>(kept);
    const tail = new LiveTail(
      { url: tailURL(), stream: streamURL(topic, q, within), topic, q, within, previewBytes },
      {
        state: (next, why) => setState({ state: next, why }),
        record: (record) => ring.current.push(record),
        loggedIn: () => {
          const { state, me } = session.get();
          if (state === "in") session.set({ state: "expired", me });
          return untilLoggedIn();
        },
      },
    );
    // A hidden tab holds no stream; it goes on where it was when it is seen again.
    const onVisible = () => (document.hidden ? tail.close() : tail.open());
    document.addEventListener("visibilitychange", onVisible);
    if (!document.hidden) tail.open();
    let last = 0;
    let shown = -1;
    const recent: number[] = [];
    const timer = setInterval(() => {
      const now = ring.current.total;
      recent.push(now - last);
      last = now;
      if (recent.length > 2000 / beat) recent.shift();
      const rate = recent.reduce((a, b) => a + b, 0) / ((recent.length * beat) / 1000);
      setTotal(now);
      if (paused.current) return;
      // Decided here: the updater runs later, when shown has moved on.
      const records = now === shown ? null : ring.current.toArray().reverse();
      setView((old) => ({ records: records ?? old.records, total: now, rate }));
      shown = now;
    }, beat);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onVisible);
      tail.close();
    };
  }, [topic, q, within]);

  const toggle = useCallback(() => {
    paused.current = !paused.current;
    setPausedAt(paused.current ? ring.current.total : null);
    if (!paused.current) setView((old) => ({ ...old, records: ring.current.toArray().reverse(), total: ring.current.total }));
  }, []);
  useHotkeys([["space", toggle, { preventDefault: true }]]);
  const waiting = pausedAt === null ? 0 : total - pausedAt;
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Group gap="sm" role="status">
          <Badge variant="dot" color={state.state === "open" ? "teal" : "yellow"} tt="none">
            {t(`tail.${state.state}`)}
          </Badge>
          <Text size="sm" c="dimmed">
            {t("tail.rate", { rate: count(Math.round(view.rate)), total: count(total), kept: count(kept) })}
          </Text>
        </Group>
        <Button
          size="compact-sm"
          variant={pausedAt === null ? "default" : "filled"}
          leftSection={pausedAt === null ? <Pause size={14} aria-hidden /> : <Play size={14} aria-hidden />}
          onClick={toggle}
        >
          {pausedAt === null ? t("tail.pause") : t("tail.resume", { n: count(waiting) })}
        </Button>
      </Group>
      {state.state === "ended" && (
        <Alert color="red" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
          {t("tail.over")} {state.why}
        </Alert>
      )}
      {view.records.length === 0 ? (
        <Empty title={t("tail.none")} />
      ) : (
        <RecordTable topic={topic} records={view.records} decoder={decoder} selected={opened} onOpen={(r) => open(idOf(r))} />
      )}
    </Stack>
  );
}
