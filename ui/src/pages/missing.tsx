import { Anchor, List, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useRouterState } from "@tanstack/react-router";
import { useState } from "react";
import { api, take } from "../api/client";
import { navPages } from "../app/shell";
import { useT } from "../i18n";
import { Link } from "../parts/link";
import { PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

/** A page that is not there: it looks for what the address may have meant. */
export function Missing() {
  const t = useT();
  usePageTitle(t("missing.title"));
  const path = useRouterState({ select: (s) => s.location.pathname });
  const last = decodeURIComponent(path.split("/").filter(Boolean).at(-1) ?? "");
  const [q, setQ] = useState(last === "ui" ? "" : last);
  const [asked] = useDebouncedValue(q, 150);
  const topics = useQuery({
    queryKey: ["missing", asked],
    queryFn: () => take(api.GET("/v1/topics", { params: { query: { q: asked.trim() || undefined, limit: 10, fields: "name" } } })),
    retry: false,
  });
  const pages = navPages.filter((p) => t(p.label).toLowerCase().includes(asked.trim().toLowerCase()));
  return (
    <Stack maw={600}>
      <PageHead title={t("missing.title")} note={<code>{path}</code>} />
      <TextInput label={t("missing.search")} value={q} onChange={(e) => setQ(e.currentTarget.value)} data-search />
      <List listStyleType="none" spacing={6} aria-label={t("missing.found")}>
        {(topics.data?.items as { name: string }[] | undefined)?.map(({ name }) => (
          <List.Item key={name}>
            <Anchor component={Link} to="/topics/$topic/messages" params={{ topic: name }}>
              {name}
            </Anchor>
          </List.Item>
        ))}
        {(pages.length > 0 ? pages : navPages.slice(0, 2)).map(({ to, label }) => (
          <List.Item key={to}>
            <Anchor component={Link} to={to}>
              {t(label)}
            </Anchor>
          </List.Item>
        ))}
      </List>
      {topics.data?.items.length === 0 && <Text c="dimmed">{t("topics.noneMatch")}</Text>}
    </Stack>
  );
}
