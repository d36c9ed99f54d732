import {
  ActionIcon,
  Badge,
  Button,
  Code,
  Group,
  MultiSelect,
  SegmentedControl,
  Select,
  Stack,
  Table,
  Text,
  TextInput,
  Tooltip,
} from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { useT } from "../i18n";
import { CopyAs, quote } from "./copy";
import { Danger } from "./danger";
import { Dialog } from "./dialog";
import { GatedButton, useAdminReason } from "./gate";
import { Scroll } from "./scroll";
import { Empty, Failure } from "./states";
import { done } from "./toast";

type Rule = Schemas["ACL"];
export const resourceTypes = ["topic", "group", "transactional-id", "cluster"] as const;
type ResourceType = (typeof resourceTypes)[number];
type Operation = Schemas["ACLRule"]["operation"];

/** Operations that mean something for each type of resource. */
export const operationsOf: Record<ResourceType, Operation[]> = {
  topic: ["read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "all"],
  group: ["read", "describe", "delete", "all"],
  "transactional-id": ["write", "describe", "all"],
  cluster: ["create", "alter", "describe", "describe-configs", "alter-configs", "cluster-action", "idempotent-write", "all"],
};

interface Fixed {
  resource_type?: ResourceType;
  resource_name?: string;
  principal?: string;
}

export function RuleTable({ rules, fixed = {}, empty }: { rules: Rule[]; fixed?: Fixed; empty: string }) {
  const t = useT();
  const reason = useAdminReason();
  const client = useQueryClient();
  const [adding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<Rule | null>(null);
  return (
    <Stack>
      <Group>
        <GatedButton reason={reason} leftSection={<Plus size={16} aria-hidden />} onClick={() => setAdding(true)}>
          {t("rules.add")}
        </GatedButton>
        <CopyAs request={() => ({ method: "GET", path: "/v1/acls" })} cli={() => "tidewire acl list"} json={() => rules} />
      </Group>
      {rules.length === 0 ? (
        <Empty title={empty} />
      ) : (
        <Scroll label={t("access.rules")}>
          <Table miw={760}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("rules.principal")}</Table.Th>
                <Table.Th>{t("rules.permission")}</Table.Th>
                <Table.Th>{t("rules.operation")}</Table.Th>
                <Table.Th>{t("rules.resource")}</Table.Th>
                <Table.Th>{t("rules.host")}</Table.Th>
                <Table.Th aria-label={t("act.delete")} />
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {rules.map((r) => (
                <Table.Tr key={r.id}>
                  <Table.Td>{r.principal}</Table.Td>
                  <Table.Td>
                    <Badge color={r.permission === "deny" ? "red" : "teal"} variant="outline" c="inherit" tt="none">
                      {r.permission}
                    </Badge>
                  </Table.Td>
                  <Table.Td>{r.operation}</Table.Td>
                  <Table.Td>
                    {r.resource_type} <Code>{r.resource_name}</Code> {r.pattern === "prefixed" && t("rules.prefixed")}
                  </Table.Td>
                  <Table.Td>{r.host}</Table.Td>
                  <Table.Td>
                    <Tooltip label={t("act.delete")}>
                      <ActionIcon
                        variant="subtle"
                        color="red"
                        aria-label={t("rules.deleteOne", { rule: `${r.principal} ${r.operation} ${r.resource_name}` })}
                        onClick={() => setDeleting(r)}
                      >
                        <Trash2 size={16} aria-hidden />
                      </ActionIcon>
                    </Tooltip>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scroll>
      )}
      {adding && <AddRule fixed={fixed} close={() => setAdding(false)} />}
      {deleting && (
        <Danger
          title={t("rules.delete")}
          action={t("act.delete")}
          close={() => setDeleting(null)}
          impact={
            <Text size="sm">
              {t("rules.deleteImpact")} <b>{deleting.principal}</b> {deleting.permission} {deleting.operation} {deleting.resource_type}{" "}
              <Code>{deleting.resource_name}</Code>
            </Text>
          }
          run={async () => {
            const { principal, resource_type, resource_name, pattern, operation, permission, host } = deleting;
            await take(
              api.DELETE("/v1/acls", {
                params: { query: { principal, resource_type, resource_name, pattern, operation, permission, host } as never },
              }),
            );
            done(t("rules.deleted"));
            void client.invalidateQueries({ queryKey: ["acls"] });
          }}
        />
      )}
    </Stack>
  );
}

function AddRule({ fixed, close }: { fixed: Fixed; close: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const [principal, setPrincipal] = useState(fixed.principal ?? "");
  const [type, setType] = useState<ResourceType>(fixed.resource_type ?? "topic");
  const [name, setName] = useState(fixed.resource_name ?? "");
  const [pattern, setPattern] = useState<"literal" | "prefixed">("literal");
  const [operations, setOperations] = useState<Operation[]>(["read"]);
  const [permission, setPermission] = useState<"allow" | "deny">("allow");
  const [host, setHost] = useState("*");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const rules = () =>
    operations.map((operation) => ({
      principal: principal.startsWith("User:") ? principal : `User:${principal}`,
      resource_type: type,
      resource_name: type === "cluster" ? "kafka-cluster" : name,
      pattern,
      operation,
      permission,
      host,
    }));
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      for (const body of rules()) await take(api.POST("/v1/acls", { body }));
      done(t("rules.added", { n: operations.length }));
      void client.invalidateQueries({ queryKey: ["acls"] });
      close();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <Dialog close={close} title={t("rules.add")} size="lg">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <Stack>
          <TextInput
            label={t("rules.principal")}
            description={t("rules.principalHint")}
            value={principal}
            onChange={(e) => setPrincipal(e.currentTarget.value)}
            required
            withAsterisk={false}
            data-autofocus
            autoComplete="off"
          />
          <Group grow align="flex-start">
            <Select
              label={t("rules.type")}
              data={[...resourceTypes]}
              value={type}
              allowDeselect={false}
              onChange={(v) => {
                setType(v as ResourceType);
                setOperations([]);
              }}
            />
            {type !== "cluster" && (
              <TextInput
                label={t("rules.name")}
                description={t("rules.nameHint")}
                value={name}
                onChange={(e) => setName(e.currentTarget.value)}
                required
                withAsterisk={false}
                autoComplete="off"
              />
            )}
          </Group>
          {type !== "cluster" && (
            <SegmentedControl
              aria-label={t("rules.pattern")}
              value={pattern}
              onChange={(v) => setPattern(v as typeof pattern)}
              data={[
                { value: "literal", label: t("rules.literal") },
                { value: "prefixed", label: t("rules.prefixedLong") },
              ]}
            />
          )}
          <MultiSelect
            label={t("rules.operation")}
            data={operationsOf[type]}
            value={operations}
            onChange={(v) => setOperations(v as Operation[])}
          />
          <SegmentedControl
            aria-label={t("rules.permission")}
            value={permission}
            onChange={(v) => setPermission(v as typeof permission)}
            data={[
              { value: "allow", label: t("rules.allow") },
              { value: "deny", label: t("rules.deny") },
            ]}
          />
          <TextInput
            label={t("rules.host")}
            description={t("rules.hostHint")}
            value={host}
            onChange={(e) => setHost(e.currentTarget.value)}
          />
          {error ? <Failure error={error} /> : null}
          <Group justify="space-between">
            <CopyAs
              request={() => ({ method: "POST", path: "/v1/acls", body: rules()[0] })}
              cli={() => {
                const { principal: p, resource_type, resource_name, pattern: kind } = rules()[0] ?? {};
                return `tidewire acl create --principal ${quote(p ?? "")} --resource-type ${resource_type} --resource-name ${quote(resource_name ?? "")} --pattern ${kind} ${operations.map((o) => `--operation ${o}`).join(" ")} --permission ${permission} --host ${quote(host)}`;
              }}
              json={() => rules()}
            />
            <Group>
              <Button variant="default" onClick={close}>
                {t("act.cancel")}
              </Button>
              <Button type="submit" loading={busy} disabled={operations.length === 0 || principal === ""}>
                {t("rules.add")}
              </Button>
            </Group>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}
