import { Alert, Button, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { Pencil, RotateCcw, Trash2 } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { api, take } from "../api/client";
import { asProblem, type ProblemBody } from "../api/problem";
import { type ConsumerGroup, groupQuery } from "../app/queries";
import { nodeNow } from "../app/session";
import { useT } from "../i18n";
import { count, duration } from "../lib/format";
import { ranges } from "../lib/resets";
import { CopyAs, quote } from "../parts/copy";
import { Danger } from "../parts/danger";
import { EditOffsets } from "../parts/editOffsets";
import { GatedButton, type Reason } from "../parts/gate";
import { GroupState } from "../parts/groupTable";
import { Link, useGo } from "../parts/link";
import { ResetOffsets } from "../parts/resetOffsets";
import { SampleConsumer } from "../parts/sampleConsumer";
import { Scroll } from "../parts/scroll";
import { Empty, Failure, Loaded, Loading, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";
import { done } from "../parts/toast";

const Chart = lazy(() => import("../parts/chart"));

type Dialog = "reset" | "edit" | "delete" | { topic: string } | null;

/** What bars a change of a group's offsets: the right, or members that live. */
function useReason(group: ConsumerGroup | undefined) {
  const t = useT();
  return (action: "reset" | "delete", right: string): Reason => {
    if (!group) return null;
    if (!group.actions.includes(action)) return t("gate.reason", { action: right, resource: `group:${group.group}` });
    return group.members.length > 0 ? t("group.live", { n: group.members.length }) : null;
  };
}

export function GroupPage() {
  const t = useT();
  const { group } = useParams({ strict: false }) as { group: string };
  usePageTitle(group);
  const state = useQuery(groupQuery(group));
  const [dialog, setDialog] = useState<Dialog>(null);
  const reason = useReason(state.data);
  const path = `/v1/groups/${encodeURIComponent(group)}`;
  // A group that is gone is no old state of itself.
  if (state.error && (!state.data || asProblem(state.error).code === "unknown-group"))
    return (
      <>
        <PageHead title={group} />
        <Failure error={state.error} retry={() => state.refetch()} />
        <Link to="/groups" className="tw-link">
          {t("group.all")}
        </Link>
      </>
    );
  const topics = [
    ...new Set([...(state.data?.members.flatMap((m) => m.topics) ?? []), ...(state.data?.offsets.map((o) => o.topic) ?? [])]),
  ];
  return (
    <Stack gap="lg">
      <PageHead
        title={group}
        note={
          state.data && (
            <Group gap="md">
              <GroupState state={state.data.state} />
              <Text span size="sm">
                {t("group.summary", {
                  n: state.data.members.length,
                  lag: count(state.data.total_lag),
                  assignor: state.data.assignor ?? "–",
                  node: state.data.coordinator ?? "–",
                })}
              </Text>
            </Group>
          )
        }
      >
        <CopyAs request={() => ({ method: "GET", path })} cli={() => `tidewire group describe ${quote(group)}`} json={() => state.data} />
        <GatedButton
          reason={reason("reset", "read")}
          variant="default"
          leftSection={<RotateCcw size={16} aria-hidden />}
          onClick={() => setDialog("reset")}
        >
          {t("group.reset")}
        </GatedButton>
        <GatedButton
          reason={reason("reset", "read")}
          variant="default"
          leftSection={<Pencil size={16} aria-hidden />}
          onClick={() => setDialog("edit")}
        >
          {t("offsets.edit")}
        </GatedButton>
        <GatedButton
          reason={reason("delete", "delete")}
          color="red"
          variant="light"
          leftSection={<Trash2 size={16} aria-hidden />}
          onClick={() => setDialog("delete")}
        >
          {t("act.delete")}
        </GatedButton>
      </PageHead>
      <Loaded of={state}>
        {(data) => (
          <>
            {data.members.length > 0 && (
              <Alert color="gray" variant="light" styles={{ message: { color: "inherit" } }}>
                {t("group.live", { n: data.members.length })}
              </Alert>
            )}
            <Members group={data} />
            <Offsets group={data} reason={reason("delete", "delete")} remove={(topic) => setDialog({ topic })} />
            <Trend group={data} at={state.dataUpdatedAt} />
          </>
        )}
      </Loaded>
      {topics[0] !== undefined && <SampleConsumer topic={topics[0]} group={group} />}
      {state.data && dialog === "reset" && <ResetOffsets group={state.data} close={() => setDialog(null)} />}
      {state.data && dialog === "edit" && <EditOffsets group={state.data} close={() => setDialog(null)} />}
      {dialog === "delete" && <DeleteGroup group={group} close={() => setDialog(null)} />}
      {dialog !== null && typeof dialog === "object" && <DeleteOffsets group={group} topic={dialog.topic} close={() => setDialog(null)} />}
    </Stack>
  );
}

const assigned = (list: { topic: string; partitions: number[] }[]) => list.map((a) => `${a.topic}: ${ranges(a.partitions)}`).join(" · ");

function Members({ group }: { group: ConsumerGroup }) {
  const t = useT();
  return (
    <section aria-labelledby="members">
      <Title order={2} size="h4" id="members" mb="xs">
        {t("groups.members")}
      </Title>
      {group.members.length === 0 ? (
        <Text size="sm" c="dimmed">
          {t("group.noMembers")}
        </Text>
      ) : (
        <Scroll label={t("groups.members")}>
          <Table miw={900}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("member.id")}</Table.Th>
                <Table.Th>{t("member.client")}</Table.Th>
                <Table.Th>{t("member.host")}</Table.Th>
                <Table.Th>{t("checker.who")}</Table.Th>
                <Table.Th>{t("member.assignment")}</Table.Th>
                <Table.Th>{t("member.joined")}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {group.members.slice(0, 500).map((m) => (
                <Table.Tr key={m.member_id}>
                  <Table.Td className="tw-mono" style={{ overflowWrap: "anywhere", maxWidth: 260 }}>
                    {m.member_id}
                    {m.instance_id && (
                      <Text size="xs" c="dimmed">
                        {m.instance_id}
                      </Text>
                    )}
                  </Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>{m.client_id ?? "–"}</Table.Td>
                  <Table.Td className="tw-mono">{m.host}</Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>{m.user}</Table.Td>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>
                    {m.assignment.length === 0 ? t("member.idle") : assigned(m.assignment)}
                    {m.revoking.length > 0 && (
                      <Text size="sm" c="dimmed">
                        {t("member.revoking", { what: assigned(m.revoking) })}
                      </Text>
                    )}
                  </Table.Td>
                  <Table.Td>
                    <Time at={m.joined_at} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scroll>
      )}
    </section>
  );
}

const step = 200;

function Offsets({ group, reason, remove }: { group: ConsumerGroup; reason: Reason; remove: (topic: string) => void }) {
  const t = useT();
  const [most, setMost] = useState(step);
  const clients = useMemo(() => new Map(group.members.map((m) => [m.member_id, m.client_id ?? m.member_id])), [group.members]);
  const rows = group.offsets;
  const topics = [...new Set(rows.map((o) => o.topic))];
  return (
    <section aria-labelledby="offsets">
      <Title order={2} size="h4" id="offsets" mb="xs">
        {t("offsets.title")}
      </Title>
      {rows.length === 0 ? (
        <Empty title={t("offsets.none")} />
      ) : (
        <Scroll label={t("offsets.title")}>
          <Table miw={900} aria-label={t("offsets.title")}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("topic.one")}</Table.Th>
                <Table.Th ta="right">{t("topic.partition")}</Table.Th>
                <Table.Th ta="right">{t("offsets.next")}</Table.Th>
                <Table.Th ta="right">{t("partitions.hw")}</Table.Th>
                <Table.Th ta="right">{t("groups.lag")}</Table.Th>
                <Table.Th ta="right">{t("offsets.lagTime")}</Table.Th>
                <Table.Th>{t("offsets.reader")}</Table.Th>
                <Table.Th>{t("offsets.committed")}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {rows.slice(0, most).map((o) => {
                const error = o.error as Partial<ProblemBody> | null;
                return (
                  <Table.Tr key={`${o.topic} ${o.partition}`}>
                    <Table.Td style={{ overflowWrap: "anywhere" }}>
                      <Link to="/topics/$topic/groups" params={{ topic: o.topic }} className="tw-link">
                        {o.topic}
                      </Link>
                    </Table.Td>
                    <Table.Td ta="right">{o.partition}</Table.Td>
                    <Table.Td ta="right">
                      {o.next_offset === null ? (
                        t("reset.none")
                      ) : (
                        <Link
                          to="/topics/$topic/messages"
                          params={{ topic: o.topic }}
                          search={{ seek: "offset", partition: o.partition, offset: o.next_offset }}
                          className="tw-link"
                        >
                          {o.next_offset}
                        </Link>
                      )}
                    </Table.Td>
                    <Table.Td ta="right">{o.high_watermark ?? "–"}</Table.Td>
                    <Table.Td ta="right">{count(o.lag)}</Table.Td>
                    <Table.Td ta="right">{o.lag === 0 ? "–" : duration(o.lag_ms)}</Table.Td>
                    <Table.Td style={{ overflowWrap: "anywhere" }}>
                      {error ? (
                        <Text size="sm" c="var(--mantine-color-error)" component="span">
                          {error.detail}
                        </Text>
                      ) : o.member_id === null ? (
                        "–"
                      ) : (
                        (clients.get(o.member_id) ?? o.member_id)
                      )}
                    </Table.Td>
                    <Table.Td>
                      <Time at={o.committed_at} />
                      {o.metadata && (
                        <Text size="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
                          {o.metadata}
                        </Text>
                      )}
                    </Table.Td>
                  </Table.Tr>
                );
              })}
            </Table.Tbody>
          </Table>
        </Scroll>
      )}
      <Group gap="xs" mt="xs">
        {rows.length > most && (
          <Button variant="default" size="compact-sm" onClick={() => setMost(most + step)}>
            {t("offsets.more", { n: rows.length - most })}
          </Button>
        )}
        {topics.slice(0, 20).map((topic) => (
          <GatedButton
            key={topic}
            size="compact-sm"
            variant="subtle"
            color="red"
            reason={reason}
            leftSection={<Trash2 size={14} aria-hidden />}
            onClick={() => remove(topic)}
          >
            {t("offsets.delete", { topic })}
          </GatedButton>
        ))}
      </Group>
    </section>
  );
}

/** Samples that the trend keeps: a quarter of an hour at one every two seconds. */
const samples = 450;

/** How the lag has gone since the page was opened. */
function Trend({ group, at }: { group: ConsumerGroup; at: number }) {
  const t = useT();
  const [points, setPoints] = useState<{ records: [number, number][]; ms: [number, number | null][] }>({ records: [], ms: [] });
  // biome-ignore lint/correctness/useExhaustiveDependencies: one sample for each answer of the node
  useEffect(() => {
    const now = nodeNow();
    const age = group.offsets.reduce<number | null>((most, o) => (o.lag_ms === null ? most : Math.max(most ?? 0, o.lag_ms)), null);
    setPoints((old) => ({
      records: [...old.records, [now, group.total_lag] as [number, number]].slice(-samples),
      ms: [...old.ms, [now, age] as [number, number | null]].slice(-samples),
    }));
  }, [at]);
  const series = useMemo(
    () => ({
      records: [{ name: t("groups.lag"), unit: "count", points: points.records }],
      ms: [{ name: t("offsets.lagTime"), unit: "ms", points: points.ms }],
    }),
    [points, t],
  );
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <Suspense fallback={<Loading rows={3} />}>
        <Chart title={t("group.trend")} series={series.records} />
        <Chart title={t("group.trendTime")} series={series.ms} />
      </Suspense>
    </SimpleGrid>
  );
}

function DeleteGroup({ group, close }: { group: string; close: () => void }) {
  const t = useT();
  const go = useGo();
  const client = useQueryClient();
  const plan = useQuery({
    queryKey: ["group-delete-plan", group],
    queryFn: () => take(api.DELETE("/v1/groups/{group}", { params: { path: { group }, query: { dry_run: true } } })),
    retry: false,
    placeholderData: undefined,
    refetchOnWindowFocus: false,
  });
  return (
    <Danger
      title={t("group.delete", { group })}
      name={group}
      action={t("act.delete")}
      close={close}
      impact={
        <Loaded of={plan} rows={2}>
          {(answer) => t("group.deleteImpact", { n: (answer as { offsets?: unknown[] } | undefined)?.offsets?.length ?? 0 })}
        </Loaded>
      }
      run={async () => {
        await take(api.DELETE("/v1/groups/{group}", { params: { path: { group } } }));
        done(t("group.deleted", { group }));
        go({ to: "/groups" });
        client.removeQueries({ queryKey: groupQuery(group).queryKey });
        void client.invalidateQueries({ queryKey: ["groups"] });
      }}
    />
  );
}

function DeleteOffsets({ group, topic, close }: { group: string; topic: string; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const plan = useQuery({
    queryKey: ["offsets-delete-plan", group, topic],
    queryFn: () => take(api.DELETE("/v1/groups/{group}/offsets", { params: { path: { group }, query: { topic, dry_run: true } } })),
    retry: false,
    placeholderData: undefined,
    refetchOnWindowFocus: false,
  });
  return (
    <Danger
      title={t("offsets.delete", { topic })}
      action={t("act.delete")}
      close={close}
      impact={
        <Loaded of={plan} rows={2}>
          {(answer) => {
            const offsets = (answer as { offsets?: { partition: number }[] } | undefined)?.offsets ?? [];
            return t("offsets.deleteImpact", { n: offsets.length, topic, partitions: ranges(offsets.map((o) => o.partition)) });
          }}
        </Loaded>
      }
      run={async () => {
        await take(api.DELETE("/v1/groups/{group}/offsets", { params: { path: { group }, query: { topic } } }));
        done(t("offsets.deleted", { topic }));
        void client.invalidateQueries({ queryKey: groupQuery(group).queryKey });
        void client.invalidateQueries({ queryKey: ["groups"] });
      }}
    />
  );
}
