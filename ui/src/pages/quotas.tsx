import { Alert, Button, Group, NumberInput, Stack, Table, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { allItems } from "../app/queries";
import { useT } from "../i18n";
import { bytes, count } from "../lib/format";
import { CopyAs, quote } from "../parts/copy";
import { Danger } from "../parts/danger";
import { Dialog } from "../parts/dialog";
import { useAdminReason } from "../parts/gate";
import { Scroll } from "../parts/scroll";
import { Empty, Failure, Loaded, PageHead } from "../parts/states";
import { usePageTitle } from "../parts/title";
import { done } from "../parts/toast";

type Quota = Schemas["Quota"];

export function QuotasPage() {
  const t = useT();
  usePageTitle(t("nav.quotas"));
  const reason = useAdminReason();
  const client = useQueryClient();
  const [editing, setEditing] = useState<Quota | "new" | null>(null);
  const [deleting, setDeleting] = useState<Quota | null>(null);
  const quotas = useQuery({
    queryKey: ["quotas"],
    enabled: reason === null,
    queryFn: () => allItems((page_token) => take(api.GET("/v1/quotas", { params: { query: { limit: 500, page_token } } }))),
  });
  const rate = (n: number | null) => (n === null ? t("quotas.unlimited") : `${bytes(n)}/s`);
  return (
    <Stack>
      <PageHead title={t("nav.quotas")} note={t("quotas.note")}>
        <CopyAs request={() => ({ method: "GET", path: "/v1/quotas" })} cli={() => "tidewire quota list"} json={() => quotas.data} />
        {reason === null && (
          <Button leftSection={<Plus size={16} aria-hidden />} onClick={() => setEditing("new")}>
            {t("quotas.set")}
          </Button>
        )}
      </PageHead>
      {reason ? (
        <Alert color="gray" variant="light" styles={{ message: { color: "inherit" } }}>
          {reason}
        </Alert>
      ) : (
        <Loaded of={quotas}>
          {(items) =>
            items.length === 0 ? (
              <Empty title={t("quotas.none")} />
            ) : (
              <Scroll label={t("nav.quotas")}>
                <Table miw={700}>
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>{t("login.username")}</Table.Th>
                      <Table.Th ta="right">{t("quotas.produce")}</Table.Th>
                      <Table.Th ta="right">{t("quotas.fetch")}</Table.Th>
                      <Table.Th ta="right">{t("quotas.requests")}</Table.Th>
                      <Table.Th aria-label={t("act.more")} />
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {items.map((q) => (
                      <Table.Tr key={q.username}>
                        <Table.Td>{q.username === "*" ? t("quotas.everybody") : q.username}</Table.Td>
                        <Table.Td ta="right">{rate(q.produce_bytes_per_s)}</Table.Td>
                        <Table.Td ta="right">{rate(q.fetch_bytes_per_s)}</Table.Td>
                        <Table.Td ta="right">{q.requests_per_s === null ? t("quotas.unlimited") : `${count(q.requests_per_s)}/s`}</Table.Td>
                        <Table.Td>
                          <Group gap="xs" justify="flex-end" wrap="nowrap">
                            <Button size="compact-sm" variant="default" onClick={() => setEditing(q)}>
                              {t("act.edit")}
                            </Button>
                            <Button size="compact-sm" variant="light" color="red" onClick={() => setDeleting(q)}>
                              {t("act.delete")}
                            </Button>
                          </Group>
                        </Table.Td>
                      </Table.Tr>
                    ))}
                  </Table.Tbody>
                </Table>
              </Scroll>
            )
          }
        </Loaded>
      )}
      {editing && <EditQuota quota={editing === "new" ? null : editing} close={() => setEditing(null)} />}
      {deleting && (
        <Danger
          title={t("quotas.delete", { name: deleting.username })}
          action={t("act.delete")}
          impact={t("quotas.deleteImpact")}
          close={() => setDeleting(null)}
          run={async () => {
            await take(
              api.DELETE("/v1/quotas/{username}", {
                params: { path: { username: deleting.username }, header: { "If-Match": `"${deleting.etag}"` } },
              }),
            );
            done(t("quotas.deleted"));
            void client.invalidateQueries({ queryKey: ["quotas"] });
          }}
        />
      )}
    </Stack>
  );
}

function EditQuota({ quota, close }: { quota: Quota | null; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [username, setUsername] = useState(quota?.username ?? "");
  const [produce, setProduce] = useState<number | string>(quota?.produce_bytes_per_s ?? "");
  const [fetched, setFetched] = useState<number | string>(quota?.fetch_bytes_per_s ?? "");
  const [requests, setRequests] = useState<number | string>(quota?.requests_per_s ?? "");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const n = (v: number | string) => (v === "" ? null : Number(v));
  const body = () => ({ produce_bytes_per_s: n(produce), fetch_bytes_per_s: n(fetched), requests_per_s: n(requests) });
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await take(
        api.PUT("/v1/quotas/{username}", {
          params: { path: { username: username || "*" }, ...(quota ? { header: { "If-Match": `"${quota.etag}"` } } : {}) },
          body: body() as never,
        }),
      );
      done(t("quotas.saved"));
      void client.invalidateQueries({ queryKey: ["quotas"] });
      close();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  const hint = (v: number | string) => (v === "" ? t("quotas.unlimited") : `${bytes(Number(v))}/s`);
  return (
    <Dialog close={close} title={t("quotas.set")}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <Stack>
          <TextInput
            label={t("login.username")}
            description={t("quotas.nameHint")}
            placeholder="*"
            value={username}
            onChange={(e) => setUsername(e.currentTarget.value)}
            disabled={quota !== null}
            data-autofocus
          />
          <NumberInput
            label={t("quotas.produceBytes")}
            description={hint(produce)}
            min={1}
            allowDecimal={false}
            value={produce}
            onChange={setProduce}
          />
          <NumberInput
            label={t("quotas.fetchBytes")}
            description={hint(fetched)}
            min={1}
            allowDecimal={false}
            value={fetched}
            onChange={setFetched}
          />
          <NumberInput label={t("quotas.requestsRate")} min={1} allowDecimal={false} value={requests} onChange={setRequests} />
          {error ? <Failure error={error} /> : null}
          <Group justify="space-between">
            <CopyAs
              request={() => ({ method: "PUT", path: `/v1/quotas/${encodeURIComponent(username || "*")}`, body: body() })}
              cli={() => `tidewire quota set ${quote(username || "*")}`}
              json={body}
            />
            <Button type="submit" loading={busy} disabled={produce === "" && fetched === "" && requests === ""}>
              {t("act.save")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}
