import {
  Alert,
  Badge,
  Button,
  Code,
  Group,
  Menu,
  PasswordInput,
  SegmentedControl,
  Select,
  Stack,
  Switch,
  Table,
  Text,
  TextInput,
} from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { CircleCheck, CircleX, Ellipsis, Plus } from "lucide-react";
import { useState } from "react";
import { api, type Schemas, take } from "../api/client";
import { allItems } from "../app/queries";
import { accessSearch, usePageSearch } from "../app/search";
import { session } from "../app/session";
import { useT } from "../i18n";
import { useStore } from "../lib/store";
import { CopyAs, quote } from "../parts/copy";
import { Danger } from "../parts/danger";
import { Dialog } from "../parts/dialog";
import { GatedButton, useAdminReason } from "../parts/gate";
import { Link } from "../parts/link";
import { PasswordDialog } from "../parts/password";
import { operationsOf, RuleTable, resourceTypes } from "../parts/rules";
import { Scroll } from "../parts/scroll";
import { Failure, Loaded, PageHead } from "../parts/states";
import { Time } from "../parts/time";
import { usePageTitle } from "../parts/title";
import { done, failed } from "../parts/toast";
import { TokensDialog } from "../parts/tokens";

type User = Schemas["User"];

export function AccessPage() {
  const t = useT();
  usePageTitle(t("nav.access"));
  const [search, change] = usePageSearch(accessSearch);
  const reason = useAdminReason();
  const tab = search.tab ?? "users";
  return (
    <Stack>
      <PageHead title={t("nav.access")} note={t("access.note")} />
      {reason ? (
        <Alert color="gray" variant="light" styles={{ message: { color: "inherit" } }}>
          <Stack gap="xs" align="flex-start">
            <Text size="sm">{t("access.barred")}</Text>
            <GatedButton reason={reason}>{t("user.create")}</GatedButton>
            <Link to="/settings" className="tw-link">
              {t("access.own")}
            </Link>
          </Stack>
        </Alert>
      ) : (
        <>
          <SegmentedControl
            aria-label={t("nav.access")}
            value={tab}
            onChange={(v) => change({ tab: v === "users" ? undefined : (v as "rules"), principal: undefined })}
            data={[
              { value: "users", label: t("access.users") },
              { value: "rules", label: t("access.rules") },
              { value: "checker", label: t("access.checker") },
            ]}
            style={{ alignSelf: "flex-start" }}
          />
          {tab === "users" && <Users />}
          {tab === "rules" && <Rules />}
          {tab === "checker" && <Checker />}
        </>
      )}
    </Stack>
  );
}

function useUsers() {
  return useQuery({
    queryKey: ["users"],
    queryFn: () => allItems((page_token) => take(api.GET("/v1/users", { params: { query: { limit: 500, page_token } } }))),
  });
}

type Shown = { kind: "create" } | { kind: "password" | "tokens" | "delete"; user: User };

function Users() {
  const t = useT();
  const { me } = useStore(session);
  const client = useQueryClient();
  const users = useUsers();
  const [dialog, setDialog] = useState<Shown | null>(null);
  const refresh = () => void client.invalidateQueries({ queryKey: ["users"] });
  const update = async (user: User, body: { admin?: boolean; disabled?: boolean }) => {
    try {
      await take(
        api.PATCH("/v1/users/{username}", {
          params: { path: { username: user.username }, header: { "If-Match": `"${user.etag}"` } },
          body,
        }),
      );
      done(t("user.changed", { name: user.username }));
    } catch (e) {
      failed(user.username, e);
    }
    refresh();
  };
  return (
    <Stack>
      <Group>
        <Button leftSection={<Plus size={16} aria-hidden />} onClick={() => setDialog({ kind: "create" })}>
          {t("user.create")}
        </Button>
        <CopyAs request={() => ({ method: "GET", path: "/v1/users" })} cli={() => "tidewire user list"} json={() => users.data} />
      </Group>
      <Loaded of={users}>
        {(items) => (
          <Scroll label={t("access.users")}>
            <Table miw={620}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("login.username")}</Table.Th>
                  <Table.Th>{t("user.role")}</Table.Th>
                  <Table.Th>{t("user.created")}</Table.Th>
                  <Table.Th aria-label={t("act.more")} />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {items.map((u) => (
                  <Table.Tr key={u.username}>
                    <Table.Td style={{ overflowWrap: "anywhere" }}>
                      <Link to="/access" search={{ tab: "rules", principal: `User:${u.username}` }} className="tw-link">
                        {u.username}
                      </Link>
                    </Table.Td>
                    <Table.Td>
                      <Group gap="xs">
                        {u.admin && <Badge tt="none">{t("user.admin")}</Badge>}
                        {u.disabled && (
                          <Badge color="gray" tt="none" variant="default">
                            {t("user.disabled")}
                          </Badge>
                        )}
                      </Group>
                    </Table.Td>
                    <Table.Td>
                      <Time at={u.created_at} />
                    </Table.Td>
                    <Table.Td>
                      <Menu position="bottom-end">
                        <Menu.Target>
                          <Button size="compact-sm" variant="default" aria-label={t("user.actions", { name: u.username })}>
                            <Ellipsis size={16} aria-hidden />
                          </Button>
                        </Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => setDialog({ kind: "password", user: u })}>{t("user.setPassword")}</Menu.Item>
                          <Menu.Item onClick={() => setDialog({ kind: "tokens", user: u })}>{t("tokens.title")}</Menu.Item>
                          <Menu.Item disabled={!u.actions.includes("alter")} onClick={() => update(u, { admin: !u.admin })}>
                            {u.admin ? t("user.demote") : t("user.promote")}
                            {!u.actions.includes("alter") && <Text size="xs">{t("user.lastAdmin")}</Text>}
                          </Menu.Item>
                          <Menu.Item disabled={!u.actions.includes("alter")} onClick={() => update(u, { disabled: !u.disabled })}>
                            {u.disabled ? t("user.enable") : t("user.disable")}
                          </Menu.Item>
                          <Menu.Item
                            color="red"
                            disabled={!u.actions.includes("delete")}
                            onClick={() => setDialog({ kind: "delete", user: u })}
                          >
                            {t("act.delete")}
                          </Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Scroll>
        )}
      </Loaded>
      {dialog?.kind === "create" && <CreateUser close={() => setDialog(null)} onDone={refresh} />}
      {dialog?.kind === "password" && (
        <PasswordDialog username={dialog.user.username} own={dialog.user.username === me?.username} close={() => setDialog(null)} />
      )}
      {dialog?.kind === "tokens" && <TokensDialog username={dialog.user.username} close={() => setDialog(null)} />}
      {dialog?.kind === "delete" && <DeleteUser user={dialog.user} close={() => setDialog(null)} onDone={refresh} />}
    </Stack>
  );
}

function DeleteUser({ user, close, onDone }: { user: User; close: () => void; onDone: () => void }) {
  const t = useT();
  const { username } = user;
  const plan = useQuery({
    queryKey: ["user-plan", username],
    queryFn: async () =>
      (await take(api.DELETE("/v1/users/{username}", { params: { path: { username }, query: { dry_run: true } } }))) as
        | Schemas["UserDeletion"]
        | undefined,
    retry: false,
  });
  return (
    <Danger
      title={t("user.delete", { name: username })}
      name={username}
      action={t("act.delete")}
      close={close}
      impact={
        <Loaded of={plan} rows={1}>
          {(p) => t("user.deleteImpact", { sessions: p?.sessions ?? 0, tokens: p?.tokens ?? 0, acls: p?.acls ?? 0 })}
        </Loaded>
      }
      run={async () => {
        await take(api.DELETE("/v1/users/{username}", { params: { path: { username } } }));
        done(t("user.deleted", { name: username }));
        onDone();
      }}
    />
  );
}

function CreateUser({ close, onDone }: { close: () => void; onDone: () => void }) {
  const t = useT();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [admin, setAdmin] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      await take(api.POST("/v1/users", { body: { username, password, admin } }));
      done(t("user.made", { name: username }));
      onDone();
      close();
    } catch (e) {
      setError(e);
      setBusy(false);
    }
  };
  return (
    <Dialog close={close} title={t("user.create")}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <Stack>
          <TextInput
            label={t("login.username")}
            value={username}
            onChange={(e) => setUsername(e.currentTarget.value)}
            required
            withAsterisk={false}
            maxLength={255}
            autoComplete="off"
            data-autofocus
          />
          <PasswordInput
            label={t("login.password")}
            description={t("user.passwordRule")}
            value={password}
            onChange={(e) => setPassword(e.currentTarget.value)}
            required
            withAsterisk={false}
            autoComplete="new-password"
            visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
          />
          <Switch
            label={t("user.admin")}
            description={t("user.adminText")}
            checked={admin}
            onChange={(e) => setAdmin(e.currentTarget.checked)}
          />
          {error ? <Failure error={error} /> : null}
          <Group justify="space-between">
            <CopyAs
              request={() => ({ method: "POST", path: "/v1/users", body: { username, password: "…", admin } })}
              cli={() => `tidewire user create ${quote(username || "NAME")}${admin ? " --admin" : ""} --password-stdin`}
            />
            <Button type="submit" loading={busy} disabled={password.length < 8 || username === ""}>
              {t("user.create")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function Rules() {
  const t = useT();
  const [search, change] = usePageSearch(accessSearch);
  const rules = useQuery({
    queryKey: ["acls", search.principal ?? ""],
    queryFn: () =>
      allItems((page_token) => take(api.GET("/v1/acls", { params: { query: { limit: 500, page_token, principal: search.principal } } }))),
  });
  return (
    <Stack>
      <TextInput
        key={search.principal}
        label={t("rules.filter")}
        placeholder="User:alice"
        defaultValue={search.principal ?? ""}
        onBlur={(e) => change({ principal: e.currentTarget.value || undefined })}
        onKeyDown={(e) => e.key === "Enter" && change({ principal: e.currentTarget.value || undefined })}
        w={{ base: "100%", sm: 320 }}
        data-search
      />
      <Loaded of={rules}>{(items) => <RuleTable rules={items} fixed={{ principal: search.principal }} empty={t("rules.none")} />}</Loaded>
    </Stack>
  );
}

/** May X do Y on Z? The node answers, with the rule that decides. */
function Checker() {
  const t = useT();
  const users = useUsers();
  const [principal, setPrincipal] = useState<string | null>(null);
  const [type, setType] = useState<(typeof resourceTypes)[number]>("topic");
  const [operation, setOperation] = useState<Schemas["ACLQuestion"]["operation"]>("read");
  const [name, setName] = useState("");
  const [answer, setAnswer] = useState<Schemas["ACLAnswer"] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const question = () => ({
    principal: `User:${principal ?? ""}`,
    operation,
    resource_type: type,
    resource_name: type === "cluster" ? "kafka-cluster" : name,
  });
  const ask = async () => {
    setError(null);
    setAnswer(null);
    try {
      setAnswer(await take(api.POST("/v1/acls/check", { body: question() })));
    } catch (e) {
      setError(e);
    }
  };
  const rule = answer?.rule as Schemas["ACL"] | null | undefined;
  const admin = users.data?.find((u) => u.username === principal)?.admin;
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        void ask();
      }}
    >
      <Stack maw={640}>
        <Group grow align="flex-end">
          <Select
            label={t("checker.who")}
            data={users.data?.map((u) => u.username) ?? []}
            value={principal}
            onChange={setPrincipal}
            searchable
            required
            withAsterisk={false}
          />
          <Select
            label={t("checker.may")}
            data={operationsOf[type]}
            value={operation}
            onChange={(v) => setOperation(v as typeof operation)}
            allowDeselect={false}
          />
        </Group>
        <Group grow align="flex-end">
          <Select
            label={t("checker.on")}
            data={[...resourceTypes]}
            value={type}
            onChange={(v) => {
              setType(v as typeof type);
              setOperation("describe");
            }}
            allowDeselect={false}
          />
          {type !== "cluster" && (
            <TextInput
              label={t("rules.name")}
              value={name}
              onChange={(e) => setName(e.currentTarget.value)}
              required
              withAsterisk={false}
            />
          )}
        </Group>
        <Group>
          <Button type="submit" disabled={!principal}>
            {t("checker.ask")}
          </Button>
          <CopyAs request={() => ({ method: "POST", path: "/v1/acls/check", body: question() })} json={question} />
        </Group>
        {error ? <Failure error={error} /> : null}
        {answer && (
          <Alert
            role="status"
            color={answer.allowed ? "teal" : "red"}
            variant="light"
            icon={answer.allowed ? <CircleCheck size={20} aria-hidden /> : <CircleX size={20} aria-hidden />}
            title={answer.allowed ? t("checker.yes") : t("checker.no")}
            styles={{ title: { color: "inherit" }, message: { color: "inherit" } }}
          >
            {rule ? (
              <>
                {t("checker.by")}{" "}
                <Code>{`${rule.permission} ${rule.operation} ${rule.resource_type}:${rule.resource_name}${rule.pattern === "prefixed" ? "*" : ""} ${rule.principal}`}</Code>
              </>
            ) : answer.allowed && admin ? (
              t("checker.admin")
            ) : (
              t("checker.noRule")
            )}
          </Alert>
        )}
      </Stack>
    </form>
  );
}
