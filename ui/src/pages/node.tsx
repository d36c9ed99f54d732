import { Alert, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { lazy, type ReactNode, Suspense } from "react";
import { api, take } from "../api/client";
import { historyQuery } from "../app/history";
import { infoQuery } from "../app/queries";
import { useT } from "../i18n";
import { consoleOf } from "../lib/cluster";
import { count } from "../lib/format";
import { prefix } from "../lib/prefix";
import { CopyAs } from "../parts/copy";
import { Link } from "../parts/link";
import { CanStop, DrainProgress, NodeActions } from "../parts/nodeActions";
import { type Broker, Disk, NodeRole, NodeState, ReplicaCount, uptime } from "../parts/nodes";
import { PartitionList } from "../parts/partitionList";
import { Failure, Loaded, Loading, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";

const Chart = lazy(() => import("../parts/chart"));
const charted = ["bytes_in_per_s", "bytes_out_per_s", "disk_free_bytes"];

export function NodePage() {
  const t = useT();
  const { node } = useParams({ strict: false }) as { node: string };
  const title = `${t("node.id")} ${node}`;
  usePageTitle(title);
  const state = useQuery({
    queryKey: ["node", node],
    queryFn: () => take(api.GET("/v1/brokers/{broker}", { params: { path: { broker: node as never } } })),
    refetchInterval: 3000,
    placeholderData: undefined,
  });
  return (
    <Stack>
      <PageHead title={title} note={state.data && <NodeState state={state.data.state} />}>
        {state.data && <NodeActions of={state.data} />}
        <CopyAs
          request={() => ({ method: "GET", path: `/v1/brokers/${encodeURIComponent(node)}` })}
          cli={() => `tidewire broker describe ${node}`}
          json={() => state.data}
        />
      </PageHead>
      {state.error && !state.data ? (
        <>
          <Failure error={state.error} retry={() => state.refetch()} />
          <Link to="/nodes" className="tw-link">
            {t("nav.nodes")}
          </Link>
        </>
      ) : (
        <Loaded of={state}>
          {(b) => (
            <Stack>
              {b.state === "offline" && (
                <Alert color="red" variant="light" role="status" styles={{ message: { color: "inherit" } }}>
                  {t("node.offlineText")}
                </Alert>
              )}
              <DrainProgress of={b} />
              {b.state !== "offline" && <CanStop of={b} />}
              <Facts of={b} />
              <section aria-labelledby="replicas">
                <Title order={2} size="h4" id="replicas" mb="xs">
                  {t("node.partitions")}
                </Title>
                <PartitionList
                  label={t("node.partitions")}
                  broker={b.id}
                  sort="-health"
                  empty={<Text size="sm">{t("node.noPartitions")}</Text>}
                />
              </section>
              <Measured of={b} />
            </Stack>
          )}
        </Loaded>
      )}
    </Stack>
  );
}

function Facts({ of: b }: { of: Broker }) {
  const t = useT();
  const rows: [string, ReactNode][] = [
    [t("node.role"), <NodeRole key="r" role={b.role} />],
    [t("node.address"), <code key="a">{b.http_address ?? b.host}</code>],
    [t("about.version"), b.version],
    [t("node.started"), <Time key="s" at={b.started_at} />],
    [t("node.uptime"), uptime(b)],
    [t("node.disk"), <Disk key="d" of={b} />],
    [t("node.leaders"), count(b.leaders)],
    [t("partitions.replicas"), <ReplicaCount key="n" of={b} />],
    [t("node.rack"), b.rack ?? "–"],
  ];
  return (
    <Table variant="vertical" withTableBorder maw={640}>
      <Table.Tbody>
        {rows.map(([label, value]) => (
          <Table.Tr key={label}>
            <Table.Th w={160}>{label}</Table.Th>
            <Table.Td style={{ overflowWrap: "anywhere" }}>{value}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

/** What the node has measured, whichever node answers; and the way to its own console. */
function Measured({ of: b }: { of: Broker }) {
  const t = useT();
  const info = useQuery(infoQuery);
  const own = info.data?.node_id === b.id;
  const reached = b.state !== "offline";
  const history = useQuery({ ...historyQuery(charted, "15m", b.id), retry: false, enabled: reached });
  if (!info.data || !reached) return null;
  if (history.error && !history.data) return <Failure error={history.error} retry={() => history.refetch()} />;
  const there = own ? null : consoleOf(b.http_address, window.location, `${prefix}/ui/nodes/${b.id}`);
  const line = (name: string, label: string) => ({ points: [], unit: "count", ...history.data?.[name], name: label });
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <Suspense fallback={<Loading rows={3} />}>
          <Chart
            title={t("overview.bytes")}
            series={[line("bytes_in_per_s", t("overview.in")), line("bytes_out_per_s", t("overview.out"))]}
          />
          <Chart title={t("metrics.disk")} series={[line("disk_free_bytes", t("metrics.free"))]} />
        </Suspense>
      </SimpleGrid>
      <Group gap="md">
        <Link to="/metrics" search={{ node: own ? undefined : b.id }} className="tw-link">
          {t("node.allMetrics")}
        </Link>
        {there && (
          <a href={there} className="tw-plain">
            {t("node.console", { node: b.id })}
          </a>
        )}
      </Group>
    </Stack>
  );
}
