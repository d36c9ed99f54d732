import { Badge, Button, Group, Stack, Table, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Problem } from "../api/problem";
import type { GroupItem } from "../app/queries";
import { groupsSearch, usePageSearch } from "../app/search";
import { type Key, useT } from "../i18n";
import { count } from "../lib/format";
import { FilterInput } from "./filterInput";
import { Link } from "./link";
import { Scroll } from "./scroll";
import { Empty, Loaded } from "./states";

const colors: Record<string, string> = { stable: "teal", empty: "gray", dead: "red" };
const names: Record<string, Key> = {
  empty: "group.state.empty",
  assigning: "group.state.assigning",
  reconciling: "group.state.reconciling",
  stable: "group.state.stable",
  dead: "group.state.dead",
};

/** What a group is at, in a word. */
export function GroupState({ state }: { state: string | null }) {
  const t = useT();
  if (!state) return <span>–</span>;
  const name = names[state];
  return (
    <Badge variant="dot" color={colors[state] ?? "yellow"} tt="none">
      {name ? t(name) : state}
    </Badge>
  );
}

export interface GroupPage {
  items: GroupItem[];
  next_page_token: string | null;
  total: number;
}

interface Props {
  /** What tells this list's answers apart from others'. */
  id: string;
  page: (query: { q?: string; sort: string; limit: number; page_token?: string }, signal: AbortSignal) => Promise<GroupPage>;
  /** What stands where there is no group at all. */
  empty: ReactNode;
}

const pageSize = 100;

/** Groups, searched and sorted by the node, page by page. A group that could not be asked says why in its row. */
export function GroupTable({ id, page, empty }: Props) {
  const t = useT();
  const [search, change] = usePageSearch(groupsSearch);
  const sort = search.sort ?? "group";
  const groups = useInfiniteQuery({
    queryKey: ["groups", id, search.q ?? "", sort],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) => page({ q: search.q, sort, limit: pageSize, page_token: pageParam }, signal),
    getNextPageParam: (last) => last.next_page_token ?? undefined,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) > 2 ? false : 5000),
  });
  const sorted = (field: string) => (sort === field ? "ascending" : sort === `-${field}` ? "descending" : "none");
  const head = (label: string, field: string, number = false) => (
    <Table.Th ta={number ? "right" : undefined} visibleFrom={field === "members" ? "sm" : undefined} aria-sort={sorted(field)}>
      <button
        type="button"
        className="tw-sort"
        onClick={() => {
          const next = sort === field ? `-${field}` : field;
          change({ sort: next === "group" ? undefined : next });
        }}
      >
        {label}
        <span aria-hidden>{sorted(field) === "ascending" ? " ↑" : sorted(field) === "descending" ? " ↓" : ""}</span>
      </button>
    </Table.Th>
  );
  return (
    <Stack gap="sm">
      <FilterInput label={t("groups.search")} value={search.q} onAsk={(q) => change({ q }, { replace: true })} />
      <Loaded of={groups}>
        {(data) => {
          const items = data.pages.flatMap((p) => p.items);
          if (items.length === 0) return search.q ? <Empty title={t("groups.noneMatch")} /> : empty;
          return (
            <>
              <Scroll label={t("nav.groups")}>
                <Table highlightOnHover>
                  <Table.Thead>
                    <Table.Tr>
                      {head(t("groups.group"), "group")}
                      {head(t("groups.state"), "state")}
                      {head(t("groups.members"), "members", true)}
                      {head(t("groups.lag"), "total_lag", true)}
                      <Table.Th visibleFrom="sm">{t("nav.topics")}</Table.Th>
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {items.map((g) => (
                      <Row key={g.group} group={g} />
                    ))}
                  </Table.Tbody>
                </Table>
              </Scroll>
              <Group gap="sm">
                <Text size="sm" c="dimmed" role="status">
                  {t("groups.shown", { n: items.length, total: count(data.pages[0]?.total ?? items.length) })}
                </Text>
                {groups.hasNextPage && (
                  <Button variant="default" size="compact-sm" loading={groups.isFetchingNextPage} onClick={() => groups.fetchNextPage()}>
                    {t("act.loadMore")}
                  </Button>
                )}
              </Group>
            </>
          );
        }}
      </Loaded>
    </Stack>
  );
}

function Row({ group: g }: { group: GroupItem }) {
  const error = g.error as Partial<Problem["body"]> | null;
  return (
    <Table.Tr>
      <Table.Td style={{ overflowWrap: "anywhere", minWidth: 140 }}>
        <Link to="/groups/$group" params={{ group: g.group }} className="tw-link">
          {g.group}
        </Link>
        {error && (
          <Text size="sm" c="var(--mantine-color-error)">
            {error.detail}
          </Text>
        )}
      </Table.Td>
      <Table.Td>
        <GroupState state={g.state} />
      </Table.Td>
      <Table.Td ta="right" visibleFrom="sm">
        {count(g.members)}
      </Table.Td>
      <Table.Td ta="right" className="tw-num">
        {count(g.total_lag)}
      </Table.Td>
      <Table.Td style={{ overflowWrap: "anywhere" }} visibleFrom="sm">
        {g.topics.slice(0, 5).map((topic) => (
          <Link key={topic} to="/topics/$topic/groups" params={{ topic }} className="tw-link" style={{ marginInlineEnd: 8 }}>
            {topic}
          </Link>
        ))}
        {g.topics.length > 5 && `+${g.topics.length - 5}`}
      </Table.Td>
    </Table.Tr>
  );
}
