import { Group, SegmentedControl, Select, SimpleGrid, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { historyQuery, type Span, spans } from "../app/history";
import { clusterQuery, infoQuery } from "../app/queries";
import { metricsSearch, usePageSearch } from "../app/search";
import { type Key, useT } from "../i18n";
import Chart from "../parts/chart";
import { CopyAs } from "../parts/copy";
import { Loaded, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

type Panel = [title: Key, ...series: [name: string, label: Key][]];

const nodePanels: Panel[] = [
  ["metrics.bytes", ["bytes_in_per_s", "overview.in"], ["bytes_out_per_s", "overview.out"]],
  ["metrics.records", ["records_in_per_s", "overview.in"], ["records_out_per_s", "overview.out"]],
  ["metrics.requests", ["requests_per_s", "metrics.all"], ["client_errors_per_s", "metrics.clientErrors"]],
  ["metrics.latency", ["request_latency_p50_ms", "metrics.p50"], ["request_latency_p99_ms", "metrics.p99"]],
  ["metrics.produceLatency", ["produce_latency_p50_ms", "metrics.p50"], ["produce_latency_p99_ms", "metrics.p99"]],
  ["metrics.logs", ["log_size_bytes", "topic.size"]],
  ["metrics.disk", ["disk_free_bytes", "metrics.free"]],
  ["metrics.memory", ["memory_bytes", "metrics.used"]],
  ["metrics.connections", ["connections", "metrics.open"]],
];

function Panels({ panels, of = (name) => name }: { panels: Panel[]; of?: (name: string) => string }) {
  const t = useT();
  const [search, change] = usePageSearch(metricsSearch);
  const span: Span = search.span ?? "1h";
  const names = panels.flatMap(([, ...series]) => series.map(([name]) => of(name)));
  const history = useQuery(historyQuery(names, span, search.node));
  return (
    <Stack>
      <Group gap="sm">
        <SegmentedControl
          aria-label={t("metrics.span")}
          value={span}
          onChange={(v) => change({ span: v as Span })}
          data={(Object.keys(spans) as Span[]).map((s) => ({ value: s, label: t(`span.${s}`) }))}
        />
        <NodeChoice node={search.node} choose={(node) => change({ node })} />
      </Group>
      <Loaded of={history}>
        {(data) => (
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            {panels.map(([title, ...series]) => (
              <Chart
                key={title}
                title={t(title)}
                series={series.map(([name, label]) => ({ points: [], unit: "count", ...data[of(name)], name: t(label) }))}
              />
            ))}
          </SimpleGrid>
        )}
      </Loaded>
    </Stack>
  );
}

/** Whose measurements are shown, where there is a choice: each node measures itself. */
function NodeChoice({ node, choose }: { node: number | undefined; choose: (node: number | undefined) => void }) {
  const t = useT();
  const info = useQuery(infoQuery);
  const cluster = useQuery({ ...clusterQuery, retry: false });
  const nodes = cluster.data?.brokers ?? [];
  if (nodes.length < 2 && node === undefined) return null;
  return (
    <Select
      aria-label={t("metrics.of")}
      w={200}
      allowDeselect={false}
      value={String(node ?? info.data?.node_id ?? "")}
      onChange={(v) => choose(v === null || Number(v) === info.data?.node_id ? undefined : Number(v))}
      data={nodes.map((b) => ({
        value: String(b.id),
        label: `${t("node.id")} ${b.id}${b.state === "online" ? "" : ` · ${t(`node.state.${b.state}`)}`}`,
      }))}
    />
  );
}

export function MetricsPage() {
  const t = useT();
  usePageTitle(t("nav.metrics"));
  return (
    <>
      <PageHead title={t("nav.metrics")} note={t("metrics.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/metrics" })} />
      </PageHead>
      <Panels panels={nodePanels} />
    </>
  );
}

const topicPanels: Panel[] = [
  ["metrics.bytes", ["bytes_in_per_s", "overview.in"], ["bytes_out_per_s", "overview.out"]],
  ["metrics.records", ["records_in_per_s", "overview.in"], ["records_out_per_s", "overview.out"]],
  ["topic.size", ["size_bytes", "topic.size"]],
];

export function TopicMetricsPage() {
  const { topic } = useParams({ strict: false }) as { topic: string };
  return <Panels panels={topicPanels} of={(name) => `topics/${topic}/${name}`} />;
}
