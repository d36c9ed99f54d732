import { Alert, Badge, Button, Code, Group, Select, Stack, Table, TextInput } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Search } from "lucide-react";
import { Fragment, useState } from "react";
import { api, take } from "../api/client";
import { auditSearch, usePageSearch } from "../app/search";
import { useT } from "../i18n";
import { CopyAs } from "../parts/copy";
import { useAdminReason } from "../parts/gate";
import { Scroll } from "../parts/scroll";
import { Empty, Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";

const colors = { success: "teal", refused: "yellow", failed: "red", unknown: "red" } as const;

export function AuditPage() {
  const t = useT();
  usePageTitle(t("nav.audit"));
  const reason = useAdminReason();
  const [search, change] = usePageSearch(auditSearch);
  const [open, setOpen] = useState<string | null>(null);
  const audit = useInfiniteQuery({
    queryKey: ["audit", search],
    enabled: reason === null,
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam }) =>
      take(api.GET("/v1/audit", { params: { query: { ...search, limit: 100, page_token: pageParam } as never } })),
    getNextPageParam: (last) => last.next_page_token ?? undefined,
  });
  const field = (name: "q" | "principal" | "resource", label: string, wide = false) => (
    <TextInput
      key={`${name}${search[name] ?? ""}`}
      aria-label={label}
      placeholder={label}
      defaultValue={search[name] ?? ""}
      leftSection={name === "q" ? <Search size={16} aria-hidden /> : undefined}
      {...(name === "q" ? { "data-search": true } : {})}
      onBlur={(e) => (e.currentTarget.value || undefined) !== search[name] && change({ [name]: e.currentTarget.value || undefined })}
      onKeyDown={(e) => e.key === "Enter" && change({ [name]: e.currentTarget.value || undefined })}
      w={{ base: "100%", sm: wide ? 260 : 190 }}
    />
  );
  return (
    <Stack>
      <PageHead title={t("nav.audit")} note={t("audit.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/audit" })} json={() => audit.data?.pages.flatMap((p) => p.items)} />
      </PageHead>
      {reason ? (
        <Alert color="gray" variant="light" styles={{ message: { color: "inherit" } }}>
          {reason}
        </Alert>
      ) : (
        <>
          <Group gap="xs">
            {field("q", t("audit.search"), true)}
            {field("principal", t("rules.principal"))}
            {field("resource", t("rules.resource"))}
            <Select
              aria-label={t("audit.outcome")}
              placeholder={t("audit.outcome")}
              clearable
              clearButtonProps={{ "aria-label": t("act.clear") }}
              data={["success", "refused", "failed", "unknown"].map((v) => ({ value: v, label: t(`audit.outcome.${v}` as never) }))}
              value={search.outcome ?? null}
              onChange={(v) => change({ outcome: (v ?? undefined) as typeof search.outcome })}
              w={160}
            />
          </Group>
          <Loaded of={audit}>
            {({ pages }) => {
              const items = pages.flatMap((p) => p.items);
              if (items.length === 0) return <Empty title={t("audit.none")} />;
              return (
                <Scroll label={t("nav.audit")}>
                  <Table miw={860}>
                    <Table.Thead>
                      <Table.Tr>
                        <Table.Th>{t("record.time")}</Table.Th>
                        <Table.Th>{t("rules.principal")}</Table.Th>
                        <Table.Th>{t("audit.action")}</Table.Th>
                        <Table.Th>{t("rules.resource")}</Table.Th>
                        <Table.Th>{t("audit.outcome")}</Table.Th>
                        <Table.Th>{t("audit.host")}</Table.Th>
                        <Table.Th aria-label={t("audit.details")} />
                      </Table.Tr>
                    </Table.Thead>
                    <Table.Tbody>
                      {items.map((e) => (
                        <Fragment key={e.id}>
                          <Table.Tr>
                            <Table.Td style={{ whiteSpace: "nowrap" }}>
                              <Time at={e.time} />
                            </Table.Td>
                            <Table.Td>{e.principal ?? "–"}</Table.Td>
                            <Table.Td>{e.action}</Table.Td>
                            <Table.Td style={{ overflowWrap: "anywhere" }}>{e.resource ?? "–"}</Table.Td>
                            <Table.Td>
                              <Badge variant="outline" c="inherit" tt="none" color={colors[e.outcome]}>
                                {t(`audit.outcome.${e.outcome}`)}
                              </Badge>
                            </Table.Td>
                            <Table.Td className="tw-mono">{e.host}</Table.Td>
                            <Table.Td>
                              <Button
                                size="compact-xs"
                                variant="default"
                                aria-expanded={open === e.id}
                                onClick={() => setOpen(open === e.id ? null : e.id)}
                              >
                                {t("audit.details")}
                              </Button>
                            </Table.Td>
                          </Table.Tr>
                          {open === e.id && (
                            <Table.Tr>
                              <Table.Td colSpan={7}>
                                <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
                                  {JSON.stringify(
                                    {
                                      status: e.status,
                                      code: e.code,
                                      request_id: e.request_id,
                                      before: e.before,
                                      after: e.after,
                                      details: e.details,
                                    },
                                    null,
                                    2,
                                  )}
                                </Code>
                              </Table.Td>
                            </Table.Tr>
                          )}
                        </Fragment>
                      ))}
                    </Table.Tbody>
                  </Table>
                </Scroll>
              );
            }}
          </Loaded>
          {audit.hasNextPage && (
            <Button
              variant="default"
              loading={audit.isFetchingNextPage}
              onClick={() => audit.fetchNextPage()}
              style={{ alignSelf: "center" }}
            >
              {t("act.loadMore")}
            </Button>
          )}
        </>
      )}
    </Stack>
  );
}
