import { ActionIcon, Badge, Button, Checkbox, Group, Menu, NumberInput, Stack, Switch, Table, Text, Tooltip } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { EllipsisVertical } from "lucide-react";
import { useState } from "react";
import { api, take } from "../api/client";
import { useMayCluster } from "../app/cluster";
import { type Topic, topicQuery } from "../app/queries";
import { partitionsSearch, usePageSearch } from "../app/search";
import { nodeNow } from "../app/session";
import { type Key, useT } from "../i18n";
import { type ReplicaRow, replicaRows } from "../lib/cluster";
import { bytes, count, duration } from "../lib/format";
import { CopyAs, quote } from "../parts/copy";
import { Danger } from "../parts/danger";
import { Dialog } from "../parts/dialog";
import { ElectDialog, type Election } from "../parts/elections";
import { GatedButton, type Reason, useMay } from "../parts/gate";
import { HealthBadge } from "../parts/health";
import { Link } from "../parts/link";
import { MoveDialog } from "../parts/moveDialog";
import { NodeLink } from "../parts/nodes";
import { Scroll } from "../parts/scroll";
import { Empty, Failure, Loaded } from "../parts/states";
import { done } from "../parts/toast";

export function PartitionsPage() {
  const t = useT();
  const { topic } = useParams({ strict: false }) as { topic: string };
  const state = useQuery(topicQuery(topic));
  const may = useMay(state.data?.actions, `topic:${topic}`);
  const [search, change] = usePageSearch(partitionsSearch);
  const alter = useMayCluster("alter");
  const [moving, setMoving] = useState<number[] | null>(null);
  const [electing, setElecting] = useState<Election | null>(null);
  const [growing, setGrowing] = useState(false);
  const [cutting, setCutting] = useState(false);
  return (
    <Loaded of={state}>
      {(data) => (
        <Stack>
          <Group gap="xs">
            <GatedButton reason={may("alter")} variant="default" onClick={() => setGrowing(true)}>
              {t("partitions.add")}
            </GatedButton>
            <GatedButton reason={may("delete")} variant="default" onClick={() => setCutting(true)}>
              {t("partitions.deleteRecords")}
            </GatedButton>
            <GatedButton reason={alter} variant="default" onClick={() => setMoving([])}>
              {t("moves.title")}
            </GatedButton>
            <CopyAs
              request={() => ({ method: "GET", path: `/v1/topics/${topic}` })}
              cli={() => `tidewire topic describe ${quote(topic)}`}
              json={() => data.partitions}
            />
          </Group>
          {data.health !== "healthy" && (
            <Switch
              label={t("partitions.onlyUnhealthy")}
              checked={search.unhealthy === "true"}
              onChange={(e) => change({ unhealthy: e.currentTarget.checked ? "true" : undefined }, { replace: true })}
            />
          )}
          <PartitionTable
            topic={topic}
            data={data}
            unhealthy={search.unhealthy === "true" && data.health !== "healthy"}
            act={{ alter, move: setMoving, elect: setElecting }}
          />
          {moving && <MoveDialog topic={topic} partitions={moving} close={() => setMoving(null)} />}
          {electing && <ElectDialog of={electing} close={() => setElecting(null)} />}
          {growing && <Grow topic={data} close={() => setGrowing(false)} />}
          {cutting && <Cut topic={data} close={() => setCutting(false)} />}
        </Stack>
      )}
    </Loaded>
  );
}

/** How many rows are shown at once. */
const most = 200;

/** What can be done with a partition. */
interface Acts {
  alter: Reason;
  move: (partitions: number[]) => void;
  elect: (election: Election) => void;
}

function PartitionTable({ topic, data, unhealthy, act }: { topic: string; data: Topic; unhealthy: boolean; act: Acts }) {
  const t = useT();
  const [shown, setShown] = useState(most);
  const rows = unhealthy ? data.partitions.filter((p) => p.health !== "healthy") : data.partitions;
  if (rows.length === 0) return <Empty title={t("partitions.allHealthy")} />;
  return (
    <>
      <Scroll label={t("topic.partitions")}>
        <Table miw={960} verticalSpacing="sm">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("topic.partition")}</Table.Th>
              <Table.Th>{t("topic.health")}</Table.Th>
              <Table.Th>{t("partitions.leader")}</Table.Th>
              <Table.Th ta="right">{t("partitions.epoch")}</Table.Th>
              <Table.Th>{t("partitions.replicas")}</Table.Th>
              <Table.Th>{t("partitions.isr")}</Table.Th>
              <Table.Th ta="right">{t("partitions.start")}</Table.Th>
              <Table.Th ta="right">
                <Tooltip label={t("partitions.hwText")}>
                  <span>{t("partitions.hw")}</span>
                </Tooltip>
              </Table.Th>
              <Table.Th ta="right">{t("partitions.end")}</Table.Th>
              <Table.Th ta="right">{t("topic.size")}</Table.Th>
              <Table.Th aria-label={t("act.more")} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.slice(0, shown).map((p) => (
              <PartitionRow key={p.partition} topic={topic} p={p} act={act} />
            ))}
          </Table.Tbody>
        </Table>
      </Scroll>
      {rows.length > shown && (
        <Group>
          <Button variant="default" size="compact-sm" onClick={() => setShown(shown + 5 * most)}>
            {t("offsets.more", { n: rows.length - shown })}
          </Button>
        </Group>
      )}
    </>
  );
}

function PartitionRow({ topic, p, act }: { topic: string; p: Topic["partitions"][number]; act: Acts }) {
  const t = useT();
  const error = p.error as { detail?: string } | null;
  return (
    <Table.Tr style={{ verticalAlign: "top" }}>
      <Table.Td>
        <Link
          to="/topics/$topic/messages"
          params={{ topic }}
          search={{ seek: "offset", partition: p.partition, offset: p.log_start_offset ?? 0 }}
          className="tw-link"
        >
          {p.partition}
        </Link>
      </Table.Td>
      <Table.Td maw={260}>
        <HealthBadge health={p.health} />
        {error && (
          <Text size="xs" className="tw-bad">
            {error.detail}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        {p.leader === null ? (
          <Badge color="red" tt="none">
            {t("partitions.noLeader")}
          </Badge>
        ) : (
          <NodeLink node={p.leader} />
        )}
      </Table.Td>
      <Table.Td ta="right">{p.leader_epoch}</Table.Td>
      <Table.Td>
        <ReplicaList of={p} />
      </Table.Td>
      <Table.Td>{p.isr.join(", ") || "–"}</Table.Td>
      <Table.Td ta="right">{p.log_start_offset ?? "–"}</Table.Td>
      <Table.Td ta="right">{p.high_watermark ?? "–"}</Table.Td>
      <Table.Td ta="right">{p.log_end_offset ?? "–"}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
        {bytes(p.size_bytes)}
        {p.segments !== null && (
          <Text size="xs" c="dimmed" span display="block">
            {t("partitions.segmentCount", { n: count(p.segments) })}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <PartitionMenu topic={topic} p={p} act={act} />
      </Table.Td>
    </Table.Tr>
  );
}

function PartitionMenu({ topic, p, act }: { topic: string; p: Topic["partitions"][number]; act: Acts }) {
  const t = useT();
  const partitions = [{ topic, partition: p.partition }];
  const label = t("partitions.actions", { partition: p.partition });
  return (
    <Menu position="bottom-end" withinPortal>
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" aria-label={label} title={label}>
          <EllipsisVertical size={18} aria-hidden />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {act.alter && <Menu.Label maw={260}>{act.alter}</Menu.Label>}
        <Menu.Item disabled={act.alter !== null} onClick={() => act.move([p.partition])}>
          {t("moves.title")}
        </Menu.Item>
        <Menu.Item disabled={act.alter !== null || p.leader === p.replicas[0]} onClick={() => act.elect({ type: "preferred", partitions })}>
          {t("elect.preferred")}
        </Menu.Item>
        <Menu.Item
          color="red"
          disabled={act.alter !== null || p.leader !== null}
          onClick={() => act.elect({ type: "unclean", partitions })}
        >
          {t("elect.unclean")}
        </Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

const roles: Record<ReplicaRow["role"], [Key, string]> = {
  leader: ["replica.leader", "teal"],
  "in-sync": ["replica.inSync", "teal"],
  "out-of-sync": ["replica.outOfSync", "red"],
  adding: ["replica.adding", "blue"],
};

/** Each replica with its log end and its lag, as the leader knows them. */
function ReplicaList({ of }: { of: Topic["partitions"][number] }) {
  const t = useT();
  return (
    <ul className="tw-replicas" aria-label={t("partitions.replicas")}>
      {replicaRows(of, nodeNow()).map((r) => {
        const [role, color] = roles[r.role];
        return (
          <li key={r.broker}>
            <NodeLink node={r.broker} />
            <Badge variant="dot" color={color} tt="none" size="sm">
              {t(role)}
            </Badge>
            <span className="tw-num">{r.end === null ? t("replica.unknown") : t("replica.end", { end: r.end, lag: count(r.lag) })}</span>
            {r.behindMs !== null && r.role === "out-of-sync" && (
              <Text size="xs" c="dimmed" span>
                {t("replica.behind", { time: duration(r.behindMs) })}
              </Text>
            )}
          </li>
        );
      })}
    </ul>
  );
}

function Grow({ topic, close }: { topic: Topic; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [n, setN] = useState<number | string>(topic.partitions.length + 1);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  return (
    <Dialog close={close} title={t("partitions.add")}>
      <Stack>
        <Text size="sm">{t("partitions.addText")}</Text>
        <NumberInput
          label={t("partitions.total")}
          min={topic.partitions.length + 1}
          max={10_000}
          allowDecimal={false}
          value={n}
          onChange={setN}
          data-autofocus
        />
        {error ? <Failure error={error} /> : null}
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t("act.cancel")}
          </Button>
          <Button
            loading={busy}
            onClick={async () => {
              setBusy(true);
              try {
                const next = await take(
                  api.PATCH("/v1/topics/{topic}", {
                    params: { path: { topic: topic.name }, header: { "If-Match": `"${topic.etag}"` } },
                    body: { partitions: Number(n) },
                  }),
                );
                client.setQueryData(topicQuery(topic.name).queryKey, next as Topic);
                done(t("partitions.added", { n: Number(n) }));
                close();
              } catch (e) {
                setError(e);
                setBusy(false);
              }
            }}
          >
            {t("partitions.add")}
          </Button>
        </Group>
      </Stack>
    </Dialog>
  );
}

/** Deletes the records of partitions up to their end: what is there now, and nothing that comes meanwhile. */
function Cut({ topic, close }: { topic: Topic; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [chosen, setChosen] = useState<number[]>(topic.partitions.map((p) => p.partition));
  const [ends] = useState(() => new Map(topic.partitions.map((p) => [p.partition, p])));
  const records = chosen.reduce((n, p) => n + ((ends.get(p)?.high_watermark ?? 0) - (ends.get(p)?.log_start_offset ?? 0)), 0);
  return (
    <Danger
      title={t("partitions.deleteRecords")}
      name={topic.name}
      action={t("act.delete")}
      close={close}
      impact={
        <Stack gap="xs">
          <Checkbox.Group label={t("partitions.which")} value={chosen.map(String)} onChange={(v) => setChosen(v.map(Number))}>
            <Group gap="sm" mt={4} mah={160} style={{ overflow: "auto" }}>
              {topic.partitions.map((p) => (
                <Checkbox key={p.partition} value={String(p.partition)} label={String(p.partition)} />
              ))}
            </Group>
          </Checkbox.Group>
          <Text size="sm">{t("partitions.cutImpact", { n: records, count: count(records) })}</Text>
        </Stack>
      }
      run={async () => {
        await take(
          api.POST("/v1/topics/{topic}/delete-records", {
            params: { path: { topic: topic.name } },
            body: { partitions: chosen.map((partition) => ({ partition, before_offset: ends.get(partition)?.high_watermark ?? 0 })) },
          }),
        );
        done(t("partitions.cut", { n: records, count: count(records) }));
        void client.invalidateQueries({ queryKey: ["topic", topic.name] });
      }}
    />
  );
}
