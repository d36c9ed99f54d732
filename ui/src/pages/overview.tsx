import { Alert, Anchor, Code, Group, Paper, SimpleGrid, Stack, Table, Text, Timeline, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { api, type Schemas, take } from "../api/client";
import { asProblem } from "../api/problem";
import { historyQuery } from "../app/history";
import { clusterQuery, infoQuery } from "../app/queries";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { prefix } from "../lib/prefix";
import { CopyAs, copyText, curl } from "../parts/copy";
import { Findings } from "../parts/findings";
import { GroupState } from "../parts/groupTable";
import { Link } from "../parts/link";
import { NodeTable } from "../parts/nodes";
import { Failure, Loaded, Loading, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

const Chart = lazy(() => import("../parts/chart"));

function Steps({ topic }: { topic: string | undefined }) {
  const t = useT();
  const name = topic ?? "first-topic";
  const base = window.location.origin + prefix;
  const produce = curl({
    method: "POST",
    path: `/v1/topics/${name}/records`,
    body: { records: [{ key: "a", value: { hello: "world" } }] },
  });
  return (
    <Paper withBorder p="lg" radius="md" component="section" aria-labelledby="steps">
      <Title order={2} size="h4" id="steps" mb="md">
        {t("steps.title")}
      </Title>
      <Timeline active={topic ? 0 : -1} bulletSize={28} lineWidth={2}>
        <Timeline.Item bullet={1} title={t("steps.topic")}>
          {topic ? (
            topic
          ) : (
            <Anchor component={Link} to="/topics/new" size="sm">
              {t("topics.create")}
            </Anchor>
          )}
        </Timeline.Item>
        <Timeline.Item bullet={2} title={t("steps.produce")}>
          <Stack gap={4}>
            {topic && (
              <Anchor component={Link} to="/topics/$topic/produce" params={{ topic }} size="sm">
                {t("steps.form")}
              </Anchor>
            )}
            <Command text={produce} />
            <Command text={`echo '{"key":"a","value":{"hello":"world"}}' | tidewire produce ${name} --server ${base}`} />
          </Stack>
        </Timeline.Item>
        <Timeline.Item bullet={3} title={t("steps.consume")}>
          <Stack gap={4}>
            {topic && (
              <Anchor component={Link} to="/topics/$topic/messages" params={{ topic }} size="sm">
                {t("steps.browse")}
              </Anchor>
            )}
            <Command text={`tidewire consume ${name} --from earliest --follow --server ${base}`} />
          </Stack>
        </Timeline.Item>
      </Timeline>
    </Paper>
  );
}

function Command({ text }: { text: string }) {
  const t = useT();
  return (
    <Group gap="xs" wrap="nowrap" align="flex-start">
      <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} flex={1}>
        {text}
      </Code>
      <Anchor component="button" type="button" size="sm" onClick={() => copyText(text)}>
        {t("copy.one")}
      </Anchor>
    </Group>
  );
}

function Figure({ label, value, to }: { label: string; value: string; to?: string }) {
  return (
    <Paper withBorder p="sm" radius="md">
      <Text size="sm" c="dimmed">
        {label}
      </Text>
      <Text fw={600} size="lg">
        {to ? (
          <Anchor component={Link} to={to} inherit>
            {value}
          </Anchor>
        ) : (
          value
        )}
      </Text>
    </Paper>
  );
}

const charted = ["bytes_in_per_s", "bytes_out_per_s", "records_in_per_s", "records_out_per_s"];

/** What the node that answers has measured; of several nodes, the charts name it. */
function Traffic({ several }: { several: boolean }) {
  const t = useT();
  const info = useQuery(infoQuery);
  const named = (title: string) => (several && info.data ? t("overview.ofNode", { title, node: info.data.node_id }) : title);
  const history = useQuery(historyQuery(charted, "15m"));
  const line = (name: string, label: string) => ({ points: [], unit: "count", ...history.data?.[name], name: label });
  if (history.error && !history.data)
    return asProblem(history.error).status === 403 ? null : <Failure error={history.error} retry={() => history.refetch()} />;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }}>
      <Suspense fallback={<Loading rows={3} />}>
        <Chart
          title={named(t("overview.bytes"))}
          series={[line("bytes_in_per_s", t("overview.in")), line("bytes_out_per_s", t("overview.out"))]}
        />
        <Chart
          title={named(t("overview.records"))}
          series={[line("records_in_per_s", t("overview.in")), line("records_out_per_s", t("overview.out"))]}
        />
      </Suspense>
    </SimpleGrid>
  );
}

function Nodes({ brokers }: { brokers: Schemas["Broker"][] }) {
  const t = useT();
  return (
    <section aria-labelledby="nodes">
      <Title order={2} size="h4" id="nodes" mb="xs">
        {t("overview.nodes")}
      </Title>
      <NodeTable label={t("overview.nodes")} items={brokers} />
    </section>
  );
}

function Running() {
  const t = useT();
  const running = useQuery({
    queryKey: ["operations", "running"],
    queryFn: () => take(api.GET("/v1/operations", { params: { query: { state: "running", limit: 5 } } })),
    refetchInterval: 2000,
    retry: false,
  });
  const total = running.data?.total ?? 0;
  return (
    <Anchor component={Link} to="/operations" size="sm">
      {t("overview.running", { n: total })}
    </Anchor>
  );
}

/** The groups that are furthest behind; nothing where there is none, or none that may be seen. */
function Lagging() {
  const t = useT();
  const groups = useQuery({
    queryKey: ["groups", "lagging"],
    queryFn: () => take(api.GET("/v1/groups", { params: { query: { sort: "-total_lag", limit: 5 } } })),
    refetchInterval: 5000,
    retry: false,
  });
  const items = groups.data?.items ?? [];
  if (items.length === 0) return null;
  return (
    <section aria-labelledby="lagging">
      <Title order={2} size="h4" id="lagging" mb="xs">
        {t("overview.lagging")}
      </Title>
      <Table maw={640}>
        <Table.Tbody>
          {items.map((g) => (
            <Table.Tr key={g.group}>
              <Table.Td style={{ overflowWrap: "anywhere" }}>
                <Link to="/groups/$group" params={{ group: g.group }} className="tw-link">
                  {g.group}
                </Link>
              </Table.Td>
              <Table.Td ta="right" className="tw-num">
                {count(g.total_lag)}
              </Table.Td>
              <Table.Td>
                <GroupState state={g.state} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </section>
  );
}

export function OverviewPage() {
  const t = useT();
  usePageTitle(t("nav.overview"));
  const cluster = useQuery({ ...clusterQuery, refetchInterval: 3000 });
  const topics = useQuery({
    queryKey: ["topics", "first"],
    queryFn: () => take(api.GET("/v1/topics", { params: { query: { limit: 3 } } })),
    refetchInterval: 10_000,
  });
  const fresh = topics.data && (topics.data.total === 0 || (topics.data.total === 1 && topics.data.items[0]?.records === 0));
  const barred = cluster.error && asProblem(cluster.error).status === 403;
  return (
    <Stack>
      <PageHead title={t("nav.overview")} note={cluster.data && `${cluster.data.name} · ${cluster.data.cluster_id}`}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/cluster" })} cli={() => "tidewire cluster status"} json={() => cluster.data} />
      </PageHead>
      {barred ? (
        <Alert color="gray" styles={{ message: { color: "inherit" } }}>
          {t("overview.barred")}
        </Alert>
      ) : (
        <Loaded of={cluster}>
          {(c) => (
            <Stack>
              <Findings of={c} />
              <SimpleGrid cols={{ base: 2, md: 4 }}>
                <Figure
                  label={t("overview.nodesUp")}
                  value={`${c.brokers.filter((b) => b.state === "online").length} / ${c.brokers.length}`}
                  to="/nodes"
                />
                <Figure
                  label={t("overview.controller")}
                  value={c.controller === null ? t("overview.noController") : t("overview.controllerOf", { node: c.controller })}
                  to={c.controller === null ? undefined : `/nodes/${c.controller}`}
                />
                <Figure label={t("nav.topics")} value={count(topics.data?.total ?? null)} to="/topics" />
                <Figure label={t("topic.partitions")} value={count(c.partitions)} to="/replication" />
              </SimpleGrid>
            </Stack>
          )}
        </Loaded>
      )}
      {fresh && <Steps topic={topics.data?.items[0]?.name} />}
      <Traffic several={(cluster.data?.brokers.length ?? 0) > 1} />
      <Lagging />
      {cluster.data && <Nodes brokers={cluster.data.brokers} />}
      <Running />
    </Stack>
  );
}
