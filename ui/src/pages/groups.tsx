import { Stack, Text } from "@mantine/core";
import { RotateCcw } from "lucide-react";
import { useState } from "react";
import { api, take } from "../api/client";
import { useT } from "../i18n";
import { CopyAs } from "../parts/copy";
import { GatedButton } from "../parts/gate";
import { type GroupPage, GroupTable } from "../parts/groupTable";
import { useGo } from "../parts/link";
import { ResetOffsets } from "../parts/resetOffsets";
import { Empty, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

export function GroupsPage() {
  const t = useT();
  usePageTitle(t("nav.groups"));
  const go = useGo();
  const [making, setMaking] = useState(false);
  return (
    <Stack>
      <PageHead title={t("nav.groups")} note={t("groups.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/groups" })} cli={() => "tidewire group list"} />
        <GatedButton reason={null} variant="default" leftSection={<RotateCcw size={16} aria-hidden />} onClick={() => setMaking(true)}>
          {t("groups.prepare")}
        </GatedButton>
      </PageHead>
      <GroupTable
        id="all"
        page={(query, signal) => take(api.GET("/v1/groups", { params: { query: query as never }, signal })) as Promise<GroupPage>}
        empty={
          <Empty title={t("groups.none")}>
            <Text size="sm" c="dimmed" ta="center" maw={460}>
              {t("groups.noneText")}
            </Text>
          </Empty>
        }
      />
      {making && <ResetOffsets close={() => setMaking(false)} onDone={(group) => go({ to: "/groups/$group", params: { group } })} />}
    </Stack>
  );
}
