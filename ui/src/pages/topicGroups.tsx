import { Stack } from "@mantine/core";
import { useParams } from "@tanstack/react-router";
import { api, take } from "../api/client";
import { useT } from "../i18n";
import { type GroupPage, GroupTable } from "../parts/groupTable";
import { SampleConsumer } from "../parts/sampleConsumer";
import { Empty } from "../parts/states";

/** Who reads a topic, and how to begin reading it. */
export function TopicGroupsPage() {
  const t = useT();
  const { topic } = useParams({ strict: false }) as { topic: string };
  return (
    <Stack gap="lg">
      <GroupTable
        id={`topic ${topic}`}
        page={(query, signal) =>
          take(api.GET("/v1/topics/{topic}/groups", { params: { path: { topic }, query: query as never }, signal })) as Promise<GroupPage>
        }
        empty={<Empty title={t("groups.noneTopic")} />}
      />
      <SampleConsumer topic={topic} />
    </Stack>
  );
}
