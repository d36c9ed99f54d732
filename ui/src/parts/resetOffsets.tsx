import { Alert, Button, Group, MultiSelect, NumberInput, SegmentedControl, Stack, Table, TagsInput, Text, TextInput } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { asProblem } from "../api/problem";
import { timeMode } from "../app/prefs";
import { type ConsumerGroup, groupQuery } from "../app/queries";
import { nodeNow } from "../app/session";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { type Move, movesInAll, type ResetForm, resetBody, resetKinds } from "../lib/resets";
import { useStore } from "../lib/store";
import { fromInput, toInput } from "../lib/timeInput";
import { CopyAs, quote } from "./copy";
import { Dialog } from "./dialog";
import { Scroll } from "./scroll";
import { Failure } from "./states";
import { done } from "./toast";

interface Props {
  /** The group; without it its name is asked for, and where there is none of the name it is made. */
  group?: ConsumerGroup;
  close: () => void;
  onDone?: (group: string) => void;
}

interface Plan {
  moves: Move[];
  /** The state of the group that the plan is made on; undefined where there is no group yet. */
  etag: string | undefined;
}

/** Rows of a plan that are shown; the sums are of all. */
const shownMoves = 200;

/** The group's etag as it is now, or undefined where there is no such group. */
async function etagOf(group: string): Promise<string | undefined> {
  try {
    return (await take(api.GET("/v1/groups/{group}", { params: { path: { group } } }))).etag;
  } catch (e) {
    if (asProblem(e).code === "unknown-group") return undefined;
    throw e;
  }
}

/**
 * Moves committed offsets: what is asked for, then the node's own plan from → to, then the
 * group's name. What is applied is the plan that was seen: a group that has changed since
 * is refused, and planned anew.
 */
export function ResetOffsets({ group, close, onDone }: Props) {
  const t = useT();
  const client = useQueryClient();
  const [name, setName] = useState(group?.group ?? "");
  const known = [...new Set(group?.offsets.map((o) => o.topic) ?? [])].sort();
  const [form, setForm] = useState<ResetForm>({
    to: "earliest",
    number: "0",
    time: Math.floor((nodeNow() - 3_600_000) / 1000) * 1000,
    topics: [],
    partitions: [],
  });
  const [plan, setPlan] = useState<Plan | null>(null);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [moved, setMoved] = useState(false);
  const [busy, setBusy] = useState(false);
  const set = (change: Partial<ResetForm>) => {
    setForm((old) => ({ ...old, ...change }));
    setPlan(null);
  };
  const body = resetBody(form);
  const ready = body !== null && name !== "" && (group !== undefined || form.topics.length > 0);
  const reset = (dry: boolean, etag: string | undefined) =>
    take(
      api.POST("/v1/groups/{group}/reset-offsets", {
        params: { path: { group: name }, query: dry ? { dry_run: true } : {}, header: etag ? { "If-Match": `"${etag}"` } : {} },
        body: body as Schemas["ResetInput"],
      }),
    );
  const makePlan = async () => {
    const etag = await etagOf(name);
    const { offsets } = await reset(true, etag);
    setPlan({ moves: offsets, etag });
  };
  const run = async (what: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    setMoved(false);
    try {
      await what();
    } catch (e) {
      setError(asProblem(e));
    } finally {
      setBusy(false);
    }
  };
  const apply = async () => {
    if (!plan) return;
    try {
      const { offsets } = await reset(false, plan.etag);
      done(t("reset.done", { n: offsets.length }));
    } catch (e) {
      if (asProblem(e).code !== "etag-mismatch") throw e;
      await makePlan();
      setMoved(true);
      return;
    }
    void client.invalidateQueries({ queryKey: groupQuery(name).queryKey });
    void client.invalidateQueries({ queryKey: ["groups"] });
    close();
    onDone?.(name);
  };
  return (
    <Dialog close={close} title={group ? t("reset.title", { group: group.group }) : t("groups.prepare")} size="xl">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (busy) return;
          if (!plan) {
            if (ready) void run(makePlan);
          } else if (plan.moves.length > 0 && typed === name) void run(apply);
        }}
      >
        <Stack gap="sm">
          <Fields group={group} known={known} name={name} setName={setName} form={form} set={set} clear={() => setPlan(null)} />
          {error ? <Failure error={error} /> : null}
          {moved && (
            <Alert color="yellow" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
              {t("reset.moved")}
            </Alert>
          )}
          {plan && <PlanTable moves={plan.moves} />}
          {plan && plan.moves.length > 0 && (
            <TextInput
              label={t("danger.type", { name })}
              value={typed}
              onChange={(e) => setTyped(e.currentTarget.value)}
              autoComplete="off"
              spellCheck={false}
            />
          )}
          <Group justify="space-between">
            <CopyAs
              request={() => ({ method: "POST", path: `/v1/groups/${encodeURIComponent(name)}/reset-offsets?dry_run=true`, body })}
              cli={() => cliOf(name, form)}
              json={() => body}
            />
            <Group gap="xs">
              <Button variant="default" onClick={close}>
                {t("act.cancel")}
              </Button>
              {plan ? (
                <Button color="red" type="submit" loading={busy} disabled={plan.moves.length === 0 || typed !== name}>
                  {t("reset.apply", { n: plan.moves.length })}
                </Button>
              ) : (
                <Button type="submit" loading={busy} disabled={!ready}>
                  {t("reset.plan")}
                </Button>
              )}
            </Group>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

/** The same for the command line client. */
export function cliOf(group: string, form: ResetForm): string {
  const body = resetBody(form);
  const parts = ["tidewire group reset", quote(group), "--to", form.to];
  if (body?.value !== undefined) parts.push("--value", String(body.value));
  for (const topic of form.topics) parts.push("--topic", quote(topic));
  if (body?.partitions) parts.push("--partition", form.partitions.join(","));
  return `${parts.join(" ")} --dry-run`;
}

interface FieldsProps {
  group: ConsumerGroup | undefined;
  known: string[];
  name: string;
  setName: (name: string) => void;
  form: ResetForm;
  set: (change: Partial<ResetForm>) => void;
  clear: () => void;
}

function Fields({ group, known, name, setName, form, set, clear }: FieldsProps) {
  const t = useT();
  const utc = useStore(timeMode) === "utc";
  const partitions = group?.offsets.filter((o) => o.topic === form.topics[0]).map((o) => String(o.partition)) ?? [];
  return (
    <>
      {!group && (
        <TextInput
          label={t("groups.group")}
          description={t("groups.prepareText")}
          value={name}
          onChange={(e) => {
            setName(e.currentTarget.value);
            clear();
          }}
          data-autofocus
          autoComplete="off"
          maxLength={255}
        />
      )}
      <Group gap="sm" align="flex-start" grow>
        {group ? (
          <MultiSelect
            label={t("nav.topics")}
            placeholder={form.topics.length === 0 ? t("reset.allTopics") : undefined}
            data={known}
            value={form.topics}
            onChange={(topics) => set({ topics, partitions: [] })}
            searchable
            clearable
            clearButtonProps={{ "aria-label": t("act.clear") }}
          />
        ) : (
          <TagsInput
            label={t("nav.topics")}
            description={t("reset.topicsHint")}
            value={form.topics}
            onChange={(topics) => set({ topics, partitions: [] })}
            clearable
            clearButtonProps={{ "aria-label": t("act.clear") }}
          />
        )}
        {form.topics.length === 1 && partitions.length > 1 && (
          <MultiSelect
            label={t("topic.partitions")}
            placeholder={form.partitions.length === 0 ? t("reset.allPartitions") : undefined}
            data={partitions}
            value={form.partitions}
            onChange={(chosen) => set({ partitions: chosen })}
            searchable
            clearable
            clearButtonProps={{ "aria-label": t("act.clear") }}
          />
        )}
      </Group>
      <Group gap="sm" align="flex-end">
        <SegmentedControl
          aria-label={t("reset.to")}
          data={resetKinds.map((value) => ({ value, label: t(`reset.to.${value}`) }))}
          value={form.to}
          onChange={(to) => set({ to: to as ResetForm["to"] })}
        />
        {form.to === "timestamp" && (
          <TextInput
            type="datetime-local"
            step={1}
            label={utc ? t("messages.timeUTC") : t("messages.timeLocal")}
            value={form.time === undefined ? "" : toInput(form.time, utc)}
            onChange={(e) => set({ time: fromInput(e.currentTarget.value, utc) })}
          />
        )}
        {(form.to === "offset" || form.to === "shift") && (
          <NumberInput
            label={t(form.to === "offset" ? "reset.offset" : "reset.shift")}
            w={220}
            allowDecimal={false}
            allowNegative={form.to === "shift"}
            value={form.number}
            onChange={(v) => set({ number: String(v) })}
          />
        )}
      </Group>
    </>
  );
}

function PlanTable({ moves }: { moves: Move[] }) {
  const t = useT();
  const { again, over } = movesInAll(moves);
  if (moves.length === 0)
    return (
      <Text size="sm" role="status">
        {t("reset.nothing")}
      </Text>
    );
  return (
    <Stack gap="xs">
      <Text size="sm" fw={600} role="status">
        {t("reset.sum", { n: moves.length, again: count(again), over: count(over) })}
      </Text>
      <Scroll label={t("reset.plan")}>
        <Table miw={480} aria-label={t("reset.plan")}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("topic.partition")}</Table.Th>
              <Table.Th ta="right">{t("reset.from")}</Table.Th>
              <Table.Th ta="right">{t("reset.then")}</Table.Th>
              <Table.Th>{t("reset.difference")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {moves.slice(0, shownMoves).map((m) => (
              <Table.Tr key={`${m.topic} ${m.partition}`}>
                <Table.Td style={{ overflowWrap: "anywhere" }}>
                  {m.topic} {m.partition}
                </Table.Td>
                <Table.Td ta="right">{m.from === null ? t("reset.none") : m.from}</Table.Td>
                <Table.Td ta="right">{m.to}</Table.Td>
                <Table.Td>
                  {m.from === null
                    ? t("reset.begins")
                    : m.to === m.from
                      ? t("reset.stays")
                      : m.to < m.from
                        ? t("reset.again", { n: m.from - m.to, count: count(m.from - m.to) })
                        : t("reset.over", { n: m.to - m.from, count: count(m.to - m.from) })}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Scroll>
      {moves.length > shownMoves && (
        <Text size="sm" c="dimmed">
          {t("groups.shown", { n: shownMoves, total: count(moves.length) })}
        </Text>
      )}
    </Stack>
  );
}
