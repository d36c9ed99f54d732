import { Button, Checkbox, Group, Switch, Text } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Plus, Trash2 } from "lucide-react";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { api, take } from "../api/client";
import type { TopicItem } from "../app/queries";
import { listSearch, usePageSearch } from "../app/search";
import { type Key, useT } from "../i18n";
import { bytes, count, duration } from "../lib/format";
import { onControl } from "../lib/keys";
import { useStable } from "../lib/stable";
import { CopyAs, quote } from "../parts/copy";
import { DeleteTopics } from "../parts/deleteTopics";
import { FilterInput } from "../parts/filterInput";
import { GatedLink } from "../parts/gate";
import { HealthBadge } from "../parts/health";
import { Link } from "../parts/link";
import { Empty, Failure, Loaded, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";

interface Column {
  id: string;
  label: Key;
  sort?: string;
  number?: boolean;
  wide?: boolean;
  cell: (topic: TopicItem) => React.ReactNode;
}

const forever = (ms: number | null, always: string) => (ms !== null && ms < 0 ? always : duration(ms));

function useColumns(): Column[] {
  const t = useT();
  return useMemo(
    () => [
      { id: "health", label: "topic.health", cell: (x) => <HealthBadge health={x.health} />, wide: true },
      { id: "partitions", label: "topic.partitions", number: true, wide: true, sort: "partitions", cell: (x) => count(x.partitions) },
      { id: "replication", label: "topic.replication", number: true, wide: true, cell: (x) => count(x.replication_factor) },
      { id: "records", label: "topic.records", number: true, sort: "records", cell: (x) => count(x.records) },
      { id: "size", label: "topic.size", number: true, sort: "size_bytes", cell: (x) => bytes(x.size_bytes) },
      {
        id: "in",
        label: "topic.in",
        number: true,
        wide: true,
        cell: (x) => (x.bytes_in_per_s === null ? "–" : `${bytes(x.bytes_in_per_s)}/s`),
      },
      { id: "retention", label: "topic.retention", number: true, wide: true, cell: (x) => forever(x.retention_ms, t("topic.forever")) },
      { id: "policy", label: "topic.policy", wide: true, cell: (x) => x.cleanup_policy ?? "–" },
    ],
    [t],
  );
}

const pageSize = 500;

export function TopicsPage() {
  const t = useT();
  usePageTitle(t("nav.topics"));
  const [search, change] = usePageSearch(listSearch);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [deleting, setDeleting] = useState(false);
  const client = useQueryClient();
  const sort = search.sort ?? "name";
  const query = { q: search.q, sort, internal: search.internal === "true" ? true : undefined };
  const topics = useInfiniteQuery({
    queryKey: ["topics", query],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      take(api.GET("/v1/topics", { params: { query: { ...query, limit: pageSize, page_token: pageParam } as never }, signal })),
    getNextPageParam: (last) => last.next_page_token ?? undefined,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) > 2 ? false : 5000),
  });
  const items = useMemo(() => topics.data?.pages.flatMap((p) => p.items) ?? [], [topics.data]);
  const total = topics.data?.pages[0]?.total ?? 0;
  // What is chosen stays with its name, wherever rows move; what has vanished is no longer chosen.
  const toggle = useStable((name: string) => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    setChosen(next);
  });
  const sortBy = useStable((next: string) => change({ sort: next === "name" ? undefined : next }));
  const more = useStable(() => topics.hasNextPage && !topics.isFetchingNextPage && void topics.fetchNextPage());
  const path = `/v1/topics?${new URLSearchParams({ sort, ...(search.q ? { q: search.q } : {}) })}`;
  return (
    <>
      <PageHead title={t("nav.topics")} note={topics.data && t("topics.total", { n: total, total: count(total) })}>
        <CopyAs
          request={() => ({ method: "GET", path })}
          cli={() => `tidewire topic list${search.q ? ` # ${quote(search.q)}` : ""}`}
          json={() => items}
        />
        <GatedLink reason={null} to="/topics/new" leftSection={<Plus size={16} aria-hidden />}>
          {t("topics.create")}
        </GatedLink>
      </PageHead>
      <Group mb="sm" gap="md">
        <FilterInput label={t("topics.search")} value={search.q} onAsk={(q) => change({ q }, { replace: true })} />
        <Switch
          label={t("topics.internal")}
          checked={search.internal === "true"}
          onChange={(e) => change({ internal: e.currentTarget.checked ? "true" : undefined })}
        />
        {chosen.size > 0 && (
          <Group gap="xs" role="status">
            <Text size="sm">{t("topics.chosen", { n: chosen.size })}</Text>
            <Button color="red" variant="light" size="sm" leftSection={<Trash2 size={16} aria-hidden />} onClick={() => setDeleting(true)}>
              {t("act.delete")}
            </Button>
            <Button variant="subtle" size="sm" onClick={() => setChosen(new Set())}>
              {t("topics.unchoose")}
            </Button>
          </Group>
        )}
      </Group>
      {topics.error && !topics.data ? (
        <Failure error={topics.error} retry={() => topics.refetch()} />
      ) : (
        <Loaded of={topics}>
          {() =>
            items.length === 0 ? (
              <Empty title={search.q ? t("topics.noneMatch") : t("topics.none")}>
                {search.q ? (
                  <Button variant="default" onClick={() => change({ q: undefined })}>
                    {t("topics.clear")}
                  </Button>
                ) : (
                  <GatedLink reason={null} to="/topics/new">
                    {t("topics.create")}
                  </GatedLink>
                )}
              </Empty>
            ) : (
              <TopicTable items={items} total={total} sort={sort} onSort={sortBy} chosen={chosen} toggle={toggle} more={more} />
            )
          }
        </Loaded>
      )}
      {deleting && (
        <DeleteTopics
          names={[...chosen]}
          close={() => setDeleting(false)}
          onDone={() => {
            setChosen(new Set());
            void client.invalidateQueries({ queryKey: ["topics"] });
          }}
        />
      )}
    </>
  );
}

interface TableProps {
  items: TopicItem[];
  total: number;
  sort: string;
  onSort: (sort: string) => void;
  chosen: ReadonlySet<string>;
  toggle: (name: string) => void;
  more: () => void;
}

/** The rows in sight. A page that only begins to ask for others does not make them anew. */
const TopicTable = memo(function TopicTable({ items, total, sort, onSort, chosen, toggle, more }: TableProps) {
  const t = useT();
  const navigate = useNavigate();
  const columns = useColumns();
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState(-1);
  const rows = useVirtualizer({ count: items.length, getScrollElement: () => box.current, estimateSize: () => 44, overscan: 10 });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= items.length - 50 && items.length < total) more();
  }, [last, items.length, total, more]);
  const move = (by: number) => {
    const next = Math.min(Math.max(at + by, 0), items.length - 1);
    setAt(next);
    rows.scrollToIndex(next);
  };
  useHotkeys([
    ["j", () => move(1)],
    ["k", () => move(-1)],
    ["x", () => items[at] && toggle(items[at].name)],
    [
      "Enter",
      () => items[at] && !onControl() && void navigate({ to: "/topics/$topic/messages", params: { topic: items[at].name } } as never),
      { preventDefault: false },
    ],
  ]);
  const narrow = typeof window !== "undefined" && window.matchMedia("(max-width: 48em)").matches;
  const visible = narrow ? columns.filter((c) => !c.wide) : columns;
  const template = `28px minmax(110px, 3fr) ${visible.map((c) => (c.id === "health" ? "150px" : "minmax(64px, 1fr)")).join(" ")}`;
  const sorted = (field: string) => (sort === field ? "ascending" : sort === `-${field}` ? "descending" : "none");
  const head = (label: string, field?: string) =>
    field ? (
      <button type="button" className="tw-sort" onClick={() => onSort(sort === field ? `-${field}` : field)}>
        {label}
        <span aria-hidden>{sorted(field) === "ascending" ? " ↑" : sorted(field) === "descending" ? " ↓" : ""}</span>
      </button>
    ) : (
      label
    );
  return (
    // biome-ignore lint/a11y/useSemanticElements: rows are placed by hand, which a table element does not allow
    <div
      ref={box}
      className="tw-grid"
      role="table"
      aria-rowcount={total + 1}
      aria-label={t("nav.topics")}
      tabIndex={0}
      style={{ maxHeight: "calc(100vh - 230px)", minHeight: 200 }}
    >
      {/* biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above */}
      <div role="row" className="tw-row tw-head" style={{ gridTemplateColumns: template }} aria-rowindex={1}>
        {/* biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above */}
        <span role="columnheader" aria-label={t("topics.choose")} />
        {/* biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above */}
        <span role="columnheader" aria-sort={sorted("name")}>
          {head(t("topic.name"), "name")}
        </span>
        {visible.map((c) => (
          // biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above
          <span role="columnheader" key={c.id} className={c.number ? "tw-num" : undefined} aria-sort={c.sort ? sorted(c.sort) : undefined}>
            {head(t(c.label), c.sort)}
          </span>
        ))}
      </div>
      {/* biome-ignore lint/a11y/useSemanticElements: as above */}
      <div role="rowgroup" style={{ height: rows.getTotalSize(), position: "relative" }}>
        {shown.map(({ index, start, size }) => {
          const topic = items[index];
          if (!topic) return null;
          return (
            // biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above
            <div
              role="row"
              key={topic.name}
              aria-rowindex={index + 2}
              data-selected={index === at}
              className="tw-row"
              style={{
                gridTemplateColumns: template,
                position: "absolute",
                insetInline: 0,
                height: size,
                transform: `translateY(${start}px)`,
              }}
            >
              {/* biome-ignore lint/a11y/useSemanticElements: as above */}
              <span role="cell">
                <Checkbox
                  size="xs"
                  checked={chosen.has(topic.name)}
                  onChange={() => toggle(topic.name)}
                  aria-label={t("topics.chooseOne", { name: topic.name })}
                  disabled={topic.internal}
                />
              </span>
              {/* biome-ignore lint/a11y/useSemanticElements: as above */}
              <span role="cell" className="tw-cut">
                <Link to="/topics/$topic/messages" params={{ topic: topic.name }} className="tw-link" title={topic.name}>
                  {topic.name}
                </Link>
              </span>
              {visible.map((c) => (
                // biome-ignore lint/a11y/useSemanticElements: as above
                <span role="cell" key={c.id} className={c.number ? "tw-num" : "tw-cut"}>
                  {c.cell(topic)}
                </span>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
});
