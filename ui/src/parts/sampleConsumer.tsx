import { Alert, Anchor, Button, Code, Group, Paper, SegmentedControl, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Play, Square } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { asProblem } from "../api/problem";
import { idOf, type Rec } from "../api/records";
import { useT } from "../i18n";
import { prefix } from "../lib/prefix";
import { type SampleKind, sample, sampleKinds } from "../lib/samples";
import { copyText } from "./copy";
import { Link, useGo } from "./link";
import { RecordTable } from "./recordTable";
import { Failure } from "./states";

/** Records that a run in the page reads at most. */
const most = 100;

type Member = { group: string; member: string };

/** Reads some records as a member of a group and commits them: what the samples do, once. `step` gets all records so far. */
async function readOnce(group: string, topic: string, signal: AbortSignal, step: (records: Rec[]) => void): Promise<Rec[]> {
  const body = { topics: [topic], auto_offset_reset: "earliest", client_id: "console" } as Schemas["JoinInput"];
  const joined = await take(api.POST("/v1/groups/{group}/members", { params: { path: { group } }, body }));
  const path: Member = { group, member: joined.member_id };
  const records: Rec[] = [];
  let cursor: string | undefined;
  try {
    // A quiet answer with an assignment is the end; one without waits for the others to give partitions up.
    for (let quiet = 0; records.length < most && quiet < 1 && !signal.aborted; ) {
      const text = { encoding: "text", key_encoding: "text", header_encoding: "text" };
      const ask = { cursor, max_records: most - records.length, wait_ms: 1000, ...text } as Schemas["PollInput"];
      const answer = await take(api.POST("/v1/groups/{group}/members/{member}/poll", { params: { path }, body: ask, signal }));
      records.push(...(answer.records as unknown as Rec[]));
      cursor = answer.cursor;
      step([...records]);
      await take(api.POST("/v1/groups/{group}/members/{member}/commit", { params: { path }, body: { cursor } as never }));
      if (answer.records.length === 0 && !answer.assignment.pending) quiet++;
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    await api.DELETE("/v1/groups/{group}/members/{member}", { params: { path } }).catch(() => undefined);
  }
  return records;
}

/** How to read a topic as a group, in several languages, and once here in the page. */
export function SampleConsumer({ topic, group: fixed }: { topic: string; group?: string }) {
  const t = useT();
  const go = useGo();
  const client = useQueryClient();
  const [typed, setTyped] = useState(fixed ?? `${topic}-readers`);
  const [kind, setKind] = useState<SampleKind>("curl");
  const [run, setRun] = useState<AbortController | null>(null);
  const [read, setRead] = useState<{ group: string; records: Rec[]; over: boolean } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);
  const group = typed.trim();
  const text = sample(kind, { base: window.location.origin + prefix, group: group || "readers", topic });
  const start = async () => {
    const controller = new AbortController();
    running.current = controller;
    setRun(controller);
    setError(null);
    setRead(null);
    try {
      const records = await readOnce(group, topic, controller.signal, (so) => setRead({ group, records: so, over: false }));
      setRead({ group, records, over: true });
    } catch (e) {
      setError(asProblem(e));
    } finally {
      setRun(null);
      void client.invalidateQueries({ queryKey: ["groups"] });
      void client.invalidateQueries({ queryKey: ["group", group] });
    }
  };
  return (
    <Paper withBorder p="md" radius="md" component="section" aria-labelledby="sample">
      <Stack gap="sm">
        <Title order={2} size="h4" id="sample">
          {t("sample.title")}
        </Title>
        <Text size="sm" c="dimmed">
          {t("sample.text")}
        </Text>
        <Group align="flex-end" gap="sm">
          {fixed === undefined && (
            <TextInput
              label={t("sample.group")}
              value={typed}
              onChange={(e) => setTyped(e.currentTarget.value)}
              w={{ base: "100%", sm: 280 }}
            />
          )}
          <SegmentedControl aria-label={t("sample.kind")} data={[...sampleKinds]} value={kind} onChange={(v) => setKind(v as SampleKind)} />
          <Button variant="default" onClick={() => copyText(text)}>
            {t("copy.one")}
          </Button>
        </Group>
        <Code block tabIndex={0} role="region" aria-label={t("sample.code")} style={{ maxHeight: 340, overflow: "auto" }}>
          {text}
        </Code>
        <Group gap="sm">
          <Button
            variant="default"
            leftSection={<Play size={16} aria-hidden />}
            loading={run !== null}
            disabled={group === ""}
            onClick={() => void start()}
          >
            {t("sample.run")}
          </Button>
          {run && (
            <Button color="red" variant="light" leftSection={<Square size={14} aria-hidden />} onClick={() => run.abort()}>
              {t("messages.stop")}
            </Button>
          )}
          <Text size="sm" c="dimmed">
            {t("sample.runText", { most })}
          </Text>
        </Group>
        {error ? <Failure error={error} /> : null}
        {read?.over && (
          <Alert color="teal" variant="light" role="status" styles={{ message: { color: "inherit" } }}>
            {t("sample.read", { n: read.records.length })}{" "}
            {fixed === undefined && (
              <Anchor component={Link} to="/groups/$group" params={{ group: read.group }} size="sm">
                {t("sample.see", { group: read.group })}
              </Anchor>
            )}
          </Alert>
        )}
        {read && read.records.length > 0 && (
          <RecordTable
            topic={topic}
            records={read.records}
            decoder="auto"
            height="320px"
            onOpen={(r) =>
              go({
                to: "/topics/$topic/messages",
                params: { topic },
                search: { seek: "offset", partition: r.partition, offset: r.offset, open: idOf(r) },
              })
            }
          />
        )}
      </Stack>
    </Paper>
  );
}
