import { Spotlight, type SpotlightActionData, type SpotlightActionGroupData, spotlight } from "@mantine/spotlight";
import "@mantine/spotlight/styles.css";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { FilePlus2, Table2, UsersRound } from "lucide-react";
import { useEffect, useState } from "react";
import { api, take } from "../api/client";
import { useT } from "../i18n";
import { navPages } from "./shell";

/** `orders 4:1182` names a record: a topic, a partition and an offset. */
export const recordName = /^([A-Za-z0-9._-]+)\s+(\d+)\s*:\s*(\d+)$/;

export default function Palette({ close, features }: { close: () => void; features?: string[] }) {
  const t = useT();
  const navigate = useNavigate();
  const [query, setQuery] = useState("");
  const [asked] = useDebouncedValue(query, 120);
  useEffect(() => spotlight.open(), []);
  const record = recordName.exec(query.trim());
  const topics = useQuery({
    queryKey: ["palette", record?.[1] ?? asked],
    queryFn: () =>
      take(api.GET("/v1/topics", { params: { query: { q: record?.[1] ?? (asked.trim() || undefined), limit: 12, fields: "name" } } })),
  });

  const consumers = useQuery({
    queryKey: ["palette-groups", asked],
    enabled: !record,
    queryFn: () => take(api.GET("/v1/groups", { params: { query: { q: asked.trim() || undefined, limit: 6, fields: "group" } } })),
    retry: false,
  });

  const go = (to: string, params?: object, search?: object) => () => void navigate({ to, params, search } as never);
  const matches = (label: string) => label.toLowerCase().includes(query.trim().toLowerCase());
  const action = (id: string, label: string, onClick: () => void, leftSection: React.ReactNode): SpotlightActionData => ({
    id,
    label,
    onClick,
    leftSection,
  });
  const groups: SpotlightActionGroupData[] = [];
  if (record) {
    const [, topic, partition, offset] = record;
    groups.push({
      group: t("palette.record"),
      actions: [
        action(
          "record",
          `${topic} ${partition}:${offset}`,
          go("/topics/$topic/messages", { topic }, { seek: "offset", partition, offset, open: `${partition}:${offset}` }),
          <Table2 size={18} aria-hidden />,
        ),
      ],
    });
  } else {
    const names = (topics.data?.items ?? []) as { name: string }[];
    groups.push({
      group: t("nav.topics"),
      actions: names.map(({ name }) =>
        action(`topic ${name}`, name, go("/topics/$topic/messages", { topic: name }), <Table2 size={18} aria-hidden />),
      ),
    });
    groups.push({
      group: t("nav.groups"),
      actions: ((consumers.data?.items ?? []) as { group: string }[]).map(({ group }) =>
        action(`group ${group}`, group, go("/groups/$group", { group }), <UsersRound size={18} aria-hidden />),
      ),
    });
    groups.push({
      group: t("palette.actions"),
      actions: [
        ...(matches(t("topics.create"))
          ? [action("create-topic", t("topics.create"), go("/topics/new"), <FilePlus2 size={18} aria-hidden />)]
          : []),
        ...names
          .filter(() => query.trim() !== "")
          .slice(0, 3)
          .map(({ name }) =>
            action(
              `produce ${name}`,
              t("palette.produce", { topic: name }),
              go("/topics/$topic/produce", { topic: name }),
              <FilePlus2 size={18} aria-hidden />,
            ),
          ),
      ],
    });
    groups.push({
      group: t("palette.pages"),
      actions: navPages
        .filter((p) => (!p.feature || !features || features.includes(p.feature)) && matches(t(p.label)))
        .map(({ to, label, icon: Icon }) => action(to, t(label), go(to), <Icon size={18} aria-hidden />)),
    });
  }
  return (
    <Spotlight
      actions={groups.filter((g) => g.actions.length > 0)}
      query={query}
      onQueryChange={setQuery}
      filter={(_, actions) => actions}
      nothingFound={t("palette.nothing")}
      shortcut={null}
      scrollable
      maxHeight={420}
      clearQueryOnClose={false}
      onSpotlightClose={() => setTimeout(close, 250)}
      searchProps={{ placeholder: t("palette.placeholder"), "aria-label": t("palette.search") }}
    />
  );
}
