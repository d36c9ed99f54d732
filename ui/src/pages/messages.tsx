import {
  Alert,
  Box,
  Button,
  Group,
  Loader,
  MultiSelect,
  NativeSelect,
  NumberInput,
  SegmentedControl,
  Select,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { ChevronLeft, ChevronRight, RefreshCw, Search, Square } from "lucide-react";
import { lazy, Suspense, startTransition, useCallback, useEffect, useMemo, useRef, useState } from "react";
import { asProblem, Problem } from "../api/problem";
import { type Ask, browsePath, type Coverage, idOf, type Page, pageSize, type Rec, readPage } from "../api/records";
import { timeMode } from "../app/prefs";
import { topicQuery } from "../app/queries";
import { messagesSearch, type Seek, usePageSearch } from "../app/search";
import { nodeNow } from "../app/session";
import { type Key, useT } from "../i18n";
import { type Decoder, decoders } from "../lib/decode";
import { bytes, count } from "../lib/format";
import { onControl } from "../lib/keys";
import { useStore } from "../lib/store";
import { fromInput, toInput } from "../lib/timeInput";
import { CopyAs, quote } from "../parts/copy";
import { useMay } from "../parts/gate";
import { RecordTable } from "../parts/recordTable";
import { Empty, Failure, Loading } from "../parts/states";

const RecordDrawer = lazy(() => import("../parts/recordDrawer"));
const Tail = lazy(() => import("../parts/tail"));
const ExportMenu = lazy(() => import("../parts/exportMenu"));

interface Reading {
  page: Page | null;
  busy: boolean;
  stopped: boolean;
  error: unknown;
}

/** Reads what is asked for, again when it changes; the records of before stay until the next are there. */
function useReading(ask: Ask | null, version: number) {
  const [reading, setReading] = useState<Reading>({ page: null, busy: true, stopped: false, error: null });
  const abort = useRef<AbortController | null>(null);
  const key = JSON.stringify(ask);
  // biome-ignore lint/correctness/useExhaustiveDependencies: key is ask, and version asks for the same again
  useEffect(() => {
    if (!ask) return;
    const controller = new AbortController();
    abort.current = controller;
    setReading((old) => ({ page: ask.q ? null : old.page, busy: true, stopped: false, error: null }));
    readPage(ask, controller.signal, (page) => !controller.signal.aborted && setReading({ page, busy: true, stopped: false, error: null }))
      .then((page) => setReading({ page, busy: false, stopped: false, error: null }))
      .catch((error) => {
        if (!controller.signal.aborted) setReading((old) => ({ ...old, busy: false, error: asProblem(error) }));
      });
    return () => controller.abort();
  }, [key, version]);
  const stop = useCallback(() => {
    abort.current?.abort();
    setReading((old) => ({ ...old, busy: false, stopped: true }));
  }, []);
  return { ...reading, stop };
}

/** What a search looked at, in words that promise nothing more. */
function CoverageLine({ scanned, reason, busy, stopped }: { scanned: Coverage; reason: string; busy: boolean; stopped: boolean }) {
  const t = useT();
  const ends: Record<string, Key> = {
    latest: "scan.latest",
    earliest: "scan.earliest",
    "max-records": "scan.full",
    "max-bytes": "scan.full",
    "node-stopping": "scan.node",
  };
  const end = stopped ? "scan.stopped" : busy ? "scan.busy" : (ends[reason] ?? "scan.more");
  const ranges = scanned.partitions.map((p) => `${p.partition}: ${p.from}–${p.to}`);
  return (
    <Text size="sm" c="dimmed" role="status">
      {t("scan.done", { n: scanned.records, records: count(scanned.records), bytes: bytes(scanned.bytes) })} {t(end)}{" "}
      {ranges.length > 0 && `(${t("scan.offsets")} ${ranges.slice(0, 8).join(", ")}${ranges.length > 8 ? ", …" : ""})`}
    </Text>
  );
}

export function MessagesPage() {
  const { topic } = useParams({ strict: false }) as { topic: string };
  const [search, change] = usePageSearch(messagesSearch);
  const [there, setThere] = useState(false);
  const shown = useCallback(() => setThere(true), []);
  const state = useQuery(topicQuery(topic));
  const barred = useMay(state.data?.actions, `topic:${topic}`)("read");
  if (barred) return <Failure error={new Problem(403, "forbidden", barred)} />;
  const seek = search.seek ?? "newest";
  return (
    <Stack gap="sm">
      <Controls topic={topic} seek={seek} partitions={state.data?.partitions.length ?? 1} there={there || seek === "live"} />
      {seek === "live" ? (
        <Suspense fallback={<Loading />}>
          <Tail
            topic={topic}
            q={search.q}
            within={search.in}
            decoder={search.decoder ?? "auto"}
            open={(id) => change({ open: id })}
            opened={search.open}
          />
        </Suspense>
      ) : (
        <Browse topic={topic} onShown={shown} />
      )}
      {search.open && (
        <Suspense fallback={null}>
          <RecordDrawer topic={topic} id={search.open} close={() => change({ open: undefined })} />
        </Suspense>
      )}
    </Stack>
  );
}

/** False until the content is there and true soon after, for what nobody reaches for before. */
function useLater(there: boolean): boolean {
  const [later, setLater] = useState(false);
  useEffect(() => {
    if (there) startTransition(() => setLater(true));
  }, [there]);
  return later;
}

/** Where to begin and what to look for. What is typed takes effect with Enter or when the field is left. */
function Controls({ topic, seek, partitions, there }: { topic: string; seek: Seek; partitions: number; there: boolean }) {
  const t = useT();
  const [search, change] = usePageSearch(messagesSearch);
  const utc = useStore(timeMode) === "utc";
  const later = useLater(there);
  const [q, setQ] = useState(search.q ?? "");
  const [offset, setOffset] = useState<number | string>(search.offset ?? 0);
  useEffect(() => setQ(search.q ?? ""), [search.q]);
  useEffect(() => setOffset(search.offset ?? 0), [search.offset]);
  const ask: Ask = { ...search, topic, seek: seek === "live" ? "newest" : seek };
  const one = Array.from({ length: partitions }, (_, i) => ({ value: String(i), label: String(i) }));
  return (
    <Stack gap="xs">
      <Group gap="sm" align="flex-end">
        <SegmentedControl
          aria-label={t("messages.seek")}
          value={seek}
          onChange={(value) =>
            change({
              seek: value === "newest" ? undefined : (value as Seek),
              cursor: undefined,
              open: undefined,
              time: value === "time" ? (search.time ?? Math.floor(nodeNow() - 3_600_000)) : undefined,
              partition: value === "offset" ? (search.partition ?? 0) : undefined,
              offset: value === "offset" ? (search.offset ?? 0) : undefined,
              q: value === "offset" ? undefined : search.q,
            })
          }
          data={(["newest", "oldest", "time", "offset", "live"] as const).map((value) => ({ value, label: t(`seek.${value}`) }))}
        />
        {seek === "time" && (
          <TextInput
            type="datetime-local"
            step={1}
            label={utc ? t("messages.timeUTC") : t("messages.timeLocal")}
            defaultValue={toInput(search.time ?? 0, utc)}
            key={`${search.time}${utc}`}
            onBlur={(e) => {
              const time = fromInput(e.currentTarget.value, utc);
              if (time !== undefined && time !== search.time) change({ time, cursor: undefined });
            }}
          />
        )}
        {seek === "offset" && (
          <>
            <Select
              label={t("topic.partition")}
              w={110}
              data={one}
              value={String(search.partition ?? 0)}
              allowDeselect={false}
              searchable={partitions > 10}
              onChange={(v) => change({ partition: Number(v), cursor: undefined })}
            />
            <form
              onSubmit={(e) => {
                e.preventDefault();
                change({ offset: Number(offset) || 0, cursor: undefined });
              }}
            >
              <NumberInput
                label={t("record.offset")}
                w={160}
                min={0}
                allowDecimal={false}
                hideControls
                value={offset}
                onChange={setOffset}
                onBlur={() => change({ offset: Number(offset) || 0 })}
              />
            </form>
          </>
        )}
        <Group gap="xs" ms="auto">
          {later && (
            <>
              <Suspense fallback={null}>
                <ExportMenu ask={ask} />
              </Suspense>
              <CopyAs
                request={() => ({ method: "GET", path: browsePath(ask, pageSize) })}
                cli={() =>
                  `tidewire consume ${quote(topic)} --from ${seek === "time" ? search.time : "earliest"}${seek === "live" ? " --follow" : ""}`
                }
              />
            </>
          )}
          <NativeSelect
            aria-label={t("messages.decoder")}
            w={120}
            data={decoders.map((d) => ({ value: d, label: t(`decoder.${d}`) }))}
            value={search.decoder ?? "auto"}
            onChange={(e) => {
              const d = e.currentTarget.value as Decoder;
              change({ decoder: d === "auto" ? undefined : d }, { replace: true });
            }}
          />
        </Group>
      </Group>
      {seek !== "offset" && (
        <form
          onSubmit={(e) => {
            e.preventDefault();
            change({ q: q || undefined, cursor: undefined });
          }}
        >
          <Group gap="xs">
            <TextInput
              data-search
              flex="1 1 240px"
              maw={460}
              aria-label={t("messages.search")}
              placeholder={t("messages.search")}
              leftSection={<Search size={16} aria-hidden />}
              value={q}
              onChange={(e) => setQ(e.currentTarget.value)}
            />
            {later ? (
              <MultiSelect
                aria-label={t("messages.in")}
                placeholder={search.in ? undefined : t("messages.inAll")}
                w={220}
                data={["key", "value", "headers"].map((value) => ({ value, label: t(`messages.in.${value}` as Key) }))}
                value={search.in?.split(",") ?? []}
                onChange={(v) => change({ in: v.length > 0 ? v.join(",") : undefined, cursor: undefined })}
                clearable
                clearButtonProps={{ "aria-label": t("act.clear") }}
              />
            ) : (
              <Box w={220} h={36} />
            )}
            <Button type="submit" variant="default">
              {t("messages.find")}
            </Button>
            {search.q && (
              <Button variant="subtle" onClick={() => change({ q: undefined, cursor: undefined })}>
                {t("act.clear")}
              </Button>
            )}
          </Group>
        </form>
      )}
    </Stack>
  );
}

function Browse({ topic, onShown }: { topic: string; onShown: () => void }) {
  const t = useT();
  const [search, change] = usePageSearch(messagesSearch);
  const [version, setVersion] = useState(0);
  const [at, setAt] = useState(-1);
  const seek = search.seek ?? "newest";
  const ask: Ask = useMemo(
    () => ({
      topic,
      seek: seek === "live" ? "newest" : seek,
      time: search.time,
      partition: search.partition,
      offset: search.offset,
      cursor: search.cursor,
      q: search.q,
      in: search.in,
    }),
    [topic, seek, search.time, search.partition, search.offset, search.cursor, search.q, search.in],
  );
  const { page, busy, stopped, error, stop } = useReading(ask, version);
  const settled = page !== null || error !== null;
  useEffect(() => {
    if (settled) onShown();
  }, [settled, onShown]);
  const records = page?.records ?? [];
  const byOffset = seek === "offset" && !search.cursor && !search.q;
  const last = records.at(-1);
  const first = records[0];
  const open = (r: Rec) => change({ open: idOf(r) });
  const step = (by: number) => {
    const now = search.open ? records.findIndex((r) => idOf(r) === search.open) : at;
    const next = Math.min(Math.max(now + by, 0), records.length - 1);
    setAt(next);
    const record = records[next];
    if (search.open && record) change({ open: idOf(record) }, { replace: true });
  };
  useHotkeys([
    ["j", () => step(1)],
    ["k", () => step(-1)],
    ["ArrowRight", () => search.open && step(1)],
    ["ArrowLeft", () => search.open && step(-1)],
    ["Enter", () => records[at] && !search.open && !onControl() && open(records[at]), { preventDefault: false }],
  ]);
  const newer = seek === "newest";
  const previous = byOffset ? (ask.offset ?? 0) > 0 : page?.prev != null;
  const next = byOffset ? page?.reason === "max-records" && last : page?.next != null;
  return (
    <Stack gap="xs">
      <Group justify="space-between" mih={34} gap="xs">
        <Group gap="xs" flex="1 1 260px">
          {busy && <Loader size="xs" aria-label={t("state.loading")} />}
          {page?.scanned && search.q ? (
            <CoverageLine scanned={page.scanned} reason={page.reason} busy={busy} stopped={stopped} />
          ) : (
            <Text size="sm" c="dimmed" role="status">
              {page ? t("messages.shown", { n: records.length }) : ""}
            </Text>
          )}
        </Group>
        <Group gap="xs">
          {busy && search.q && (
            <Button size="compact-sm" color="red" variant="light" leftSection={<Square size={14} aria-hidden />} onClick={stop}>
              {t("messages.stop")}
            </Button>
          )}
          {!busy && search.q && page?.cursor && (stopped || page.reason === "max-time") && (
            <Button size="compact-sm" variant="light" onClick={() => change({ cursor: page.cursor ?? undefined })}>
              {t("messages.continue")}
            </Button>
          )}
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<RefreshCw size={14} aria-hidden />}
            onClick={() => setVersion((n) => n + 1)}
          >
            {t("act.refresh")}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            leftSection={<ChevronLeft size={14} aria-hidden />}
            disabled={!previous || busy}
            onClick={() =>
              byOffset
                ? change({ offset: Math.max(0, (first?.offset ?? ask.offset ?? 0) - pageSize) })
                : change({ cursor: page?.prev ?? undefined })
            }
          >
            {newer ? t("messages.newer") : t("messages.earlier")}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            rightSection={<ChevronRight size={14} aria-hidden />}
            disabled={!next || busy}
            onClick={() => (byOffset && last ? change({ offset: last.offset + 1 }) : change({ cursor: page?.next ?? undefined }))}
          >
            {newer ? t("messages.older") : t("messages.later")}
          </Button>
        </Group>
      </Group>
      {error ? <RangeFailure error={error} retry={() => setVersion((n) => n + 1)} /> : null}
      {!page && busy && !error ? <Loading /> : null}
      {page && records.length === 0 && !busy && !error ? (
        <Empty title={search.q ? t("messages.noMatch") : t("messages.none")} />
      ) : (
        records.length > 0 && (
          <RecordTable
            records={records}
            decoder={search.decoder ?? "auto"}
            selected={search.open}
            cursor={at}
            onOpen={open}
            topic={topic}
          />
        )
      )}
    </Stack>
  );
}

/** An offset that is not there any more, or not yet: says what is, and leads there. */
function RangeFailure({ error, retry }: { error: unknown; retry: () => void }) {
  const t = useT();
  const [, change] = usePageSearch(messagesSearch);
  const problem = asProblem(error);
  const range = problem.body as { earliest?: number; latest?: number };
  if (problem.code !== "offset-out-of-range" || range.earliest === undefined) return <Failure error={error} retry={retry} />;
  return (
    <Alert color="yellow" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
      <Group>
        <Text size="sm">{t("messages.range", { from: range.earliest, to: range.latest ?? "" })}</Text>
        <Button size="compact-sm" variant="default" onClick={() => change({ offset: range.earliest })}>
          {t("messages.toEarliest")}
        </Button>
      </Group>
    </Alert>
  );
}
