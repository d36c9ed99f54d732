import { Group, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Outlet, useParams, useRouterState } from "@tanstack/react-router";
import { Trash2 } from "lucide-react";
import { useEffect, useState } from "react";
import { topicQuery } from "../app/queries";
import { type Key, useT } from "../i18n";
import { bytes, count } from "../lib/format";
import { CopyAs, quote } from "../parts/copy";
import { DeleteTopics } from "../parts/deleteTopics";
import { GatedButton, useMay } from "../parts/gate";
import { HealthBadge } from "../parts/health";
import { Link, useGo } from "../parts/link";
import { Failure, Loading, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

const tabs: [string, Key][] = [
  ["messages", "tab.messages"],
  ["produce", "tab.produce"],
  ["partitions", "topic.partitions"],
  ["config", "tab.config"],
  ["groups", "nav.groups"],
  ["access", "nav.access"],
  ["metrics", "nav.metrics"],
];

export function TopicLayout() {
  const t = useT();
  const { topic } = useParams({ strict: false }) as { topic: string };
  usePageTitle(topic);
  const go = useGo();
  const client = useQueryClient();
  const [deleting, setDeleting] = useState(false);
  const state = useQuery(topicQuery(topic));
  const may = useMay(state.data?.actions, `topic:${topic}`);
  useEffect(() => {
    // The page that is opened next most often: its part of the console is there by then.
    const soon = setTimeout(() => void import("./messages").catch(() => {}), 200); // the click tells of a failure
    return () => clearTimeout(soon);
  }, []);
  const path = useRouterState({ select: (s) => s.location.pathname });
  const current = path.slice(path.lastIndexOf("/") + 1);
  if (state.error && !state.data)
    return (
      <>
        <PageHead title={topic} />
        <Failure error={state.error} retry={() => state.refetch()} />
      </>
    );
  const partitions = state.data?.partitions ?? [];
  const sum = (of: (p: (typeof partitions)[number]) => number | null) => partitions.reduce((n, p) => n + (of(p) ?? 0), 0);
  return (
    <>
      <PageHead
        title={topic}
        note={
          state.data && (
            <Group gap="md">
              <HealthBadge health={state.data.health} />
              <Text span size="sm">
                {t("topic.summary", {
                  n: partitions.length,
                  records: count(
                    sum((p) => (p.high_watermark === null || p.log_start_offset === null ? null : p.high_watermark - p.log_start_offset)),
                  ),
                  size: bytes(sum((p) => p.size_bytes)),
                })}
              </Text>
            </Group>
          )
        }
      >
        <CopyAs
          request={() => ({ method: "GET", path: `/v1/topics/${topic}` })}
          cli={() => `tidewire topic describe ${quote(topic)}`}
          json={() => state.data}
        />
        <GatedButton
          reason={may("delete")}
          color="red"
          variant="light"
          leftSection={<Trash2 size={16} aria-hidden />}
          onClick={() => setDeleting(true)}
        >
          {t("act.delete")}
        </GatedButton>
      </PageHead>
      <nav className="tw-tabs" aria-label={topic}>
        {tabs.map(([id, label]) => (
          <Link
            key={id}
            to={`/topics/$topic/${id}`}
            params={{ topic }}
            className="tw-tab"
            aria-current={current === id ? "page" : undefined}
          >
            {t(label)}
          </Link>
        ))}
      </nav>
      {state.data ? <Outlet /> : <Loading />}
      {deleting && (
        <DeleteTopics
          names={[topic]}
          close={() => setDeleting(false)}
          onDone={() => {
            client.removeQueries({ queryKey: ["topic", topic] });
            void client.invalidateQueries({ queryKey: ["topics"] });
            go({ to: "/topics" });
          }}
        />
      )}
    </>
  );
}
