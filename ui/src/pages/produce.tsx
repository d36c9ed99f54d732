import {
  ActionIcon,
  Alert,
  Anchor,
  Button,
  Collapse,
  FileInput,
  Group,
  NumberInput,
  Paper,
  Progress,
  Select,
  SimpleGrid,
  Stack,
  Switch,
  Table,
  Text,
  Textarea,
  TextInput,
  Title,
} from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Plus, Trash2, Upload } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { call } from "../api/client";
import { asProblem, Problem } from "../api/problem";
import { lines, readRecord } from "../api/records";
import { topicQuery } from "../app/queries";
import { produceSearch, usePageSearch } from "../app/search";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { fillTemplate, randomUUID } from "../lib/template";
import { CopyAs, quote } from "../parts/copy";
import { GatedButton, type Reason, useMay } from "../parts/gate";
import { Link } from "../parts/link";
import { Scroll } from "../parts/scroll";
import { Failure } from "../parts/states";

interface Draft {
  key: string;
  keyNull: boolean;
  value: string;
  valueNull: boolean;
  encoding: "text" | "base64";
  keyEncoding: "text" | "base64";
  partition: string | number;
  headers: { id: number; name: string; value: string; encoding?: "base64" }[];
}

const blank: Draft = {
  key: "",
  keyNull: true,
  value: "",
  valueNull: false,
  encoding: "text",
  keyEncoding: "text",
  partition: "",
  headers: [],
};

/** The record of a form, as the API takes it. */
export function recordOf(draft: Draft, i: number, now: number, uuid = randomUUID): Record<string, unknown> {
  const fill = (text: string) => fillTemplate(text, i, now, uuid);
  return {
    ...(draft.partition === "" ? {} : { partition: Number(draft.partition) }),
    key: draft.keyNull ? null : draft.keyEncoding === "base64" ? draft.key : fill(draft.key),
    ...(!draft.keyNull && draft.keyEncoding === "base64" ? { key_encoding: "base64" } : {}),
    value: draft.valueNull ? null : draft.encoding === "base64" ? draft.value : fill(draft.value),
    ...(!draft.valueNull && draft.encoding === "base64" ? { value_encoding: "base64" } : {}),
    ...(draft.headers.length > 0
      ? {
          headers: draft.headers.map(({ name, value, encoding }) => ({
            name,
            value: encoding ? value : fill(value),
            ...(encoding ? { encoding } : {}),
          })),
        }
      : {}),
  };
}

interface Result {
  partition: number;
  offset: number;
}

export function ProducePage() {
  const { topic } = useParams({ strict: false }) as { topic: string };
  const state = useQuery(topicQuery(topic));
  const reason = useMay(state.data?.actions, `topic:${topic}`)("write");
  return (
    <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="lg">
      <ProduceForm topic={topic} reason={reason} partitions={state.data?.partitions.length ?? 1} />
      <UploadForm topic={topic} reason={reason} />
    </SimpleGrid>
  );
}

/** Fills the form from a record that is to be sent again. */
function usePrefill(topic: string, from: string | undefined, set: (draft: Draft) => void) {
  const source = useQuery({
    queryKey: ["record", topic, from],
    enabled: from !== undefined,
    queryFn: () => readRecord(topic, from ?? ""),
    placeholderData: undefined,
  });
  const filled = useRef<string | null>(null);
  useEffect(() => {
    const r = source.data;
    if (!r || filled.current === from) return;
    filled.current = from ?? null;
    set({
      key: r.key ?? "",
      keyNull: r.key === null,
      keyEncoding: r.key_encoding === "base64" ? "base64" : "text",
      value: r.value ?? "",
      valueNull: r.value === null,
      encoding: r.value_encoding === "base64" ? "base64" : "text",
      partition: "",
      headers: r.headers.map((h, id) => ({
        id,
        name: h.name,
        value: h.value ?? "",
        ...(h.encoding === "base64" ? { encoding: "base64" as const } : {}),
      })),
    });
  }, [source.data, from, set]);
  return source.error;
}

/** Sends the draft so often, in batches that keep the rate; what came back is told after each. */
async function sendMany(
  topic: string,
  draft: Draft,
  repeat: number,
  rate: number,
  signal: AbortSignal,
  told: (results: Result[], sent: number) => void,
) {
  const batch = Math.max(1, Math.min(500, Math.ceil((rate || 5000) / 10)));
  const began = Date.now();
  for (let sent = 0; sent < repeat && !signal.aborted; ) {
    const n = Math.min(batch, repeat - sent);
    const now = Date.now();
    const records = Array.from({ length: n }, (_, k) => recordOf(draft, sent + k, now));
    const answer = await call(`/v1/topics/${encodeURIComponent(topic)}/records`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ records }),
      signal,
    });
    const { results } = (await answer.json()) as { results: (Result & { problem?: { status: number; code: string; detail: string } })[] };
    sent += n;
    const bad = results.find((r) => r.problem)?.problem;
    told(
      results.filter((r) => !r.problem),
      sent,
    );
    if (bad) throw new Problem(bad.status, bad.code, bad.detail);
    const due = rate > 0 ? began + (sent / rate) * 1000 - Date.now() : 0;
    if (due > 0 && sent < repeat) await new Promise((resolve) => setTimeout(resolve, due));
  }
}

function ProduceForm({ topic, reason, partitions }: { topic: string; reason: Reason; partitions: number }) {
  const t = useT();
  const client = useQueryClient();
  const [search] = usePageSearch(produceSearch);
  const [draft, setDraft] = useState<Draft>(blank);
  const [more, setMore] = useState(false);
  const [repeat, setRepeat] = useState<number | string>(1);
  const [rate, setRate] = useState<number | string>(0);
  const [busy, setBusy] = useState<AbortController | null>(null);
  const [sent, setSent] = useState(0);
  const [results, setResults] = useState<Result[]>([]);
  const [error, setError] = useState<unknown>(null);
  const prefillError = usePrefill(topic, search.from, setDraft);
  const set = (change: Partial<Draft>) => setDraft((old) => ({ ...old, ...change }));
  const times = Number(repeat) || 1;
  const body = () => ({ records: [recordOf(draft, 0, Date.now())] });
  const jsonFault = (() => {
    if (draft.encoding !== "text" || !/^\s*[{[]/.test(draft.value)) return null;
    try {
      JSON.parse(fillTemplate(draft.value, 0, 0, () => ""));
      return null;
    } catch (e) {
      return t("produce.noJSON", { why: e instanceof Error ? e.message : "" });
    }
  })();
  const submit = async () => {
    const controller = new AbortController();
    setBusy(controller);
    setError(null);
    setResults([]);
    setSent(0);
    try {
      await sendMany(topic, draft, times, Number(rate) || 0, controller.signal, (found, n) => {
        setSent(n);
        setResults((old) => [...found.reverse(), ...old].slice(0, 50));
      });
    } catch (e) {
      if (!controller.signal.aborted) setError(asProblem(e));
    } finally {
      setBusy(null);
      void client.invalidateQueries({ queryKey: ["topic", topic] });
    }
  };
  return (
    <Paper withBorder p="md" radius="md" component="section" aria-labelledby="produce-form">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (reason === null) void submit();
        }}
      >
        <Stack gap="sm">
          <Group justify="space-between">
            <Title order={2} size="h4" id="produce-form">
              {search.from ? t("produce.resend", { id: search.from }) : t("produce.form")}
            </Title>
            <CopyAs
              size="compact-sm"
              request={() => ({ method: "POST", path: `/v1/topics/${topic}/records`, body: body() })}
              cli={() => `echo ${quote(JSON.stringify(body().records[0]))} | tidewire produce ${quote(topic)}`}
              json={body}
            />
          </Group>
          {prefillError ? <Failure error={prefillError} /> : null}
          <Group align="flex-end" wrap="nowrap" gap="sm">
            <TextInput
              flex={1}
              label={t("record.key")}
              value={draft.key}
              placeholder={draft.keyNull ? "null" : t("produce.emptyText")}
              onChange={(e) => set({ key: e.currentTarget.value, keyNull: false })}
              autoComplete="off"
              spellCheck={false}
            />
            <Switch
              label="null"
              mb={8}
              aria-label={t("produce.keyNull")}
              checked={draft.keyNull}
              onChange={(e) => set({ keyNull: e.currentTarget.checked, ...(e.currentTarget.checked ? { key: "" } : {}) })}
            />
          </Group>
          <Group align="flex-start" wrap="nowrap" gap="sm">
            <Textarea
              flex={1}
              label={t("record.value")}
              value={draft.value}
              placeholder={draft.valueNull ? "null" : t("produce.emptyText")}
              onChange={(e) => set({ value: e.currentTarget.value, valueNull: false })}
              autosize
              minRows={5}
              maxRows={20}
              spellCheck={false}
              description={jsonFault ?? undefined}
              classNames={{ input: "tw-mono" }}
            />
            <Switch
              label="null"
              mt={30}
              aria-label={t("produce.valueNull")}
              checked={draft.valueNull}
              onChange={(e) => set({ valueNull: e.currentTarget.checked, ...(e.currentTarget.checked ? { value: "" } : {}) })}
            />
          </Group>
          <Group gap="sm" align="flex-end">
            <Select
              label={t("produce.encoding")}
              w={150}
              data={[
                { value: "text", label: t("decoder.text") },
                { value: "base64", label: "Base64" },
              ]}
              value={draft.encoding}
              allowDeselect={false}
              onChange={(v) => set({ encoding: v as Draft["encoding"] })}
            />
            <NumberInput
              label={t("topic.partition")}
              placeholder={t("produce.byKey")}
              w={150}
              min={0}
              max={partitions - 1}
              allowDecimal={false}
              value={draft.partition}
              onChange={(v) => set({ partition: v })}
            />
            <Button variant="subtle" onClick={() => setMore((m) => !m)} aria-expanded={more}>
              {t("produce.more")}
            </Button>
          </Group>
          {draft.headers.map((h) => (
            <Group key={h.id} wrap="nowrap" gap="xs">
              <TextInput
                flex={1}
                aria-label={t("record.headerName")}
                placeholder={t("record.headerName")}
                value={h.name}
                onChange={(e) => set({ headers: draft.headers.map((x) => (x.id === h.id ? { ...x, name: e.currentTarget.value } : x)) })}
              />
              <TextInput
                flex={2}
                aria-label={t("record.headerValue")}
                placeholder={t("record.headerValue")}
                value={h.value}
                onChange={(e) => set({ headers: draft.headers.map((x) => (x.id === h.id ? { ...x, value: e.currentTarget.value } : x)) })}
              />
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={t("produce.dropHeader", { name: h.name })}
                onClick={() => set({ headers: draft.headers.filter((x) => x.id !== h.id) })}
              >
                <Trash2 size={16} aria-hidden />
              </ActionIcon>
            </Group>
          ))}
          <Group>
            <Button
              variant="subtle"
              size="compact-sm"
              leftSection={<Plus size={14} aria-hidden />}
              onClick={() =>
                set({ headers: [...draft.headers, { id: Math.max(0, ...draft.headers.map((h) => h.id + 1)), name: "", value: "" }] })
              }
            >
              {t("produce.addHeader")}
            </Button>
          </Group>
          <Collapse expanded={more}>
            <Group gap="sm" align="flex-end">
              <NumberInput
                label={t("produce.repeat")}
                description={t("produce.templates")}
                w={260}
                min={1}
                max={1_000_000}
                allowDecimal={false}
                value={repeat}
                onChange={setRepeat}
              />
              <NumberInput
                label={t("produce.rate")}
                description={t("produce.rateHint")}
                w={180}
                min={0}
                max={100_000}
                value={rate}
                onChange={setRate}
              />
            </Group>
          </Collapse>
          {error ? <Failure error={error} /> : null}
          <Group>
            <GatedButton type="submit" reason={reason} loading={busy !== null && times < 2}>
              {times > 1 ? t("produce.sendMany", { n: times, count: count(times) }) : t("produce.send")}
            </GatedButton>
            {busy && times > 1 && (
              <Button color="red" variant="light" onClick={() => busy.abort()}>
                {t("messages.stop")}
              </Button>
            )}
          </Group>
          {busy && times > 1 && <Progress value={(sent / times) * 100} aria-label={t("produce.progress")} />}
          {sent > 0 && (
            <Alert color="teal" variant="light" role="status" styles={{ message: { color: "inherit" } }}>
              {t("produce.sent", { n: sent, count: count(sent) })}{" "}
              {results.map((r) => (
                <Anchor
                  key={`${r.partition}:${r.offset}`}
                  component={Link}
                  to="/topics/$topic/messages"
                  params={{ topic }}
                  search={{ seek: "offset", partition: r.partition, offset: r.offset, open: `${r.partition}:${r.offset}` }}
                  className="tw-mono"
                  me="xs"
                >
                  {r.partition}:{r.offset}
                </Anchor>
              ))}
            </Alert>
          )}
        </Stack>
      </form>
    </Paper>
  );
}

interface Summary {
  records: number;
  failed: number;
  stopped: string | null;
  offsets: { partition: number; first_offset: number; last_offset: number }[];
}

function UploadForm({ topic, reason }: { topic: string; reason: Reason }) {
  const t = useT();
  const client = useQueryClient();
  const [file, setFile] = useState<File | null>(null);
  const [busy, setBusy] = useState<AbortController | null>(null);
  const [faults, setFaults] = useState<{ index: number; detail: string }[]>([]);
  const [summary, setSummary] = useState<Summary | null>(null);
  const [error, setError] = useState<unknown>(null);
  const upload = async () => {
    if (!file) return;
    const controller = new AbortController();
    setBusy(controller);
    setError(null);
    setFaults([]);
    setSummary(null);
    try {
      const answer = await call(`/v1/topics/${encodeURIComponent(topic)}/records?results=errors`, {
        method: "POST",
        headers: { "Content-Type": "application/x-ndjson" },
        body: file,
        signal: controller.signal,
      });
      let end: Summary | null = null;
      if (answer.body)
        for await (const text of lines(answer.body)) {
          const line = JSON.parse(text);
          if (line.summary) end = line.summary as Summary;
          else if (line.problem && line.index === undefined)
            throw new Problem(line.problem.status, line.problem.code, line.problem.detail, line.problem);
          else if (line.problem)
            setFaults((old) => (old.length < 100 ? [...old, { index: line.index, detail: line.problem.detail }] : old));
        }
      if (!end) throw new Problem(0, "unreachable", t("upload.noSummary"));
      setSummary(end);
    } catch (e) {
      setError(controller.signal.aborted ? new Problem(0, "stopped", t("upload.stopped")) : asProblem(e));
    } finally {
      setBusy(null);
      void client.invalidateQueries({ queryKey: ["topic", topic] });
    }
  };
  return (
    <Paper withBorder p="md" radius="md" component="section" aria-labelledby="upload-form">
      <Stack gap="sm">
        <Title order={2} size="h4" id="upload-form">
          {t("upload.title")}
        </Title>
        <Text size="sm" c="dimmed">
          {t("upload.text")}
        </Text>
        <FileInput
          label={t("upload.file")}
          placeholder={t("upload.choose")}
          leftSection={<Upload size={16} aria-hidden />}
          value={file}
          onChange={setFile}
          clearable
          clearButtonProps={{ "aria-label": t("act.clear") }}
          fileInputProps={{ "aria-label": t("upload.file") }}
        />
        <Group>
          <GatedButton reason={reason ?? (file ? null : t("upload.needFile"))} loading={busy !== null} onClick={upload}>
            {t("upload.send")}
          </GatedButton>
          {busy && (
            <Button color="red" variant="light" onClick={() => busy.abort()}>
              {t("messages.stop")}
            </Button>
          )}
        </Group>
        {error ? <Failure error={error} /> : null}
        {summary && (
          <Alert
            color={summary.failed > 0 || summary.stopped ? "yellow" : "teal"}
            variant="light"
            role="status"
            styles={{ message: { color: "inherit" } }}
          >
            {t("upload.done", { n: summary.records, count: count(summary.records), failed: count(summary.failed) })}{" "}
            {summary.stopped && t("upload.ended", { why: summary.stopped })}
            <div>
              {summary.offsets?.map((o) => (
                <Anchor
                  key={o.partition}
                  component={Link}
                  to="/topics/$topic/messages"
                  params={{ topic }}
                  search={{ seek: "offset", partition: o.partition, offset: o.first_offset }}
                  className="tw-mono"
                  me="md"
                >
                  {o.partition}: {o.first_offset}–{o.last_offset}
                </Anchor>
              ))}
            </div>
          </Alert>
        )}
        {faults.length > 0 && (
          <Scroll label={t("upload.faults")}>
            <Table miw={400}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th w={90}>{t("upload.line")}</Table.Th>
                  <Table.Th>{t("upload.why")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {faults.map((f) => (
                  <Table.Tr key={f.index}>
                    <Table.Td>{f.index + 1}</Table.Td>
                    <Table.Td>{f.detail}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Scroll>
        )}
      </Stack>
    </Paper>
  );
}
