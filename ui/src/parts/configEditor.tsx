import { Alert, Badge, Button, Group, MultiSelect, Paper, Select, Stack, Switch, Table, Text, TextInput, Title } from "@mantine/core";
import { Search } from "lucide-react";
import { useState } from "react";
import { asProblem } from "../api/problem";
import { type Key, useT } from "../i18n";
import { settingInWords } from "../lib/format";
import { type Conflict, conflicts, faultOf, groupOf, groups, patchOf, prune, type Setting, type Staged } from "../lib/settings";
import { Dialog } from "./dialog";
import { GatedButton, type Reason } from "./gate";
import { Scroll } from "./scroll";
import { Failure } from "./states";
import { done } from "./toast";

export interface ConfigState {
  items: Setting[];
  etag: string;
}
export type Patch = { set?: Record<string, string>; unset?: string[] };

interface Props {
  config: ConfigState;
  reason: Reason;
  /** Sends a change for the state that has the etag; returns the new state. 412 when it has moved on. */
  save: (patch: Patch, etag: string) => Promise<ConfigState>;
  /** The state as it is now. */
  reload: () => Promise<ConfigState>;
  q?: string;
  modified: boolean;
  onFilter: (change: { q?: string; modified?: string }) => void;
}

/**
 * Settings by group, each with what it means. Changes are staged beside the values they were
 * made on; saving sends only keys that were touched, and where somebody else was faster their
 * change is shown beside these.
 */
export function ConfigEditor({ config, reason, save, reload, q, modified, onFilter }: Props) {
  const t = useT();
  const [staged, setStaged] = useState<Staged>({});
  const [base, setBase] = useState<ConfigState>(config);
  const [reviewing, setReviewing] = useState(false);
  const [clash, setClash] = useState<{ list: Conflict[]; now: ConfigState; names: string[] } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const names = Object.keys(staged);
  // While changes are staged the state that they were made on stays, whatever is refreshed meanwhile.
  const shown = names.length > 0 ? base : config;

  const stage = (name: string, change: string | null | undefined) => {
    if (names.length === 0) setBase(config);
    const next = { ...staged };
    if (change === undefined) delete next[name];
    else next[name] = change;
    setStaged(prune(next, shown.items));
  };
  const commit = async (which: string[], state: ConfigState) => {
    setBusy(true);
    setError(null);
    try {
      const next = await save(patchOf(staged, which), state.etag);
      done(t("config.saved", { n: which.length, names: which.join(", ") }));
      setStaged((old) => prune(Object.fromEntries(Object.entries(old).filter(([n]) => !which.includes(n))), next.items));
      setBase(next);
      setReviewing(false);
      setClash(null);
    } catch (e) {
      const problem = asProblem(e);
      if (problem.code === "etag-mismatch") {
        const now = await reload().catch(() => null);
        if (now) setClash({ list: conflicts(state.items, now.items, staged), now, names: which });
        else setError(problem);
      } else setError(problem);
    } finally {
      setBusy(false);
    }
  };

  const wanted = (item: Setting) =>
    (!modified || item.source !== "default" || item.name in staged) &&
    (!q || `${item.name} ${item.doc}`.toLowerCase().includes(q.toLowerCase()));
  const list = shown.items.filter(wanted);
  return (
    <Stack>
      <Group>
        <TextInput
          data-search
          aria-label={t("config.search")}
          placeholder={t("config.search")}
          leftSection={<Search size={16} aria-hidden />}
          value={q ?? ""}
          onChange={(e) => onFilter({ q: e.currentTarget.value || undefined })}
          w={{ base: "100%", sm: 320 }}
        />
        <Switch
          label={t("config.modified")}
          checked={modified}
          onChange={(e) => onFilter({ modified: e.currentTarget.checked ? "true" : undefined })}
        />
      </Group>
      {list.length === 0 && <Text c="dimmed">{t("config.none")}</Text>}
      {groups.map((group) => {
        const items = list.filter((i) => groupOf(i.name) === group);
        if (items.length === 0) return null;
        return (
          <section key={group} aria-labelledby={`config-${group}`}>
            <Title order={2} size="h4" mb="xs" id={`config-${group}`}>
              {t(`config.group.${group}`)}
            </Title>
            <Paper withBorder radius="md">
              {items.map((item) => (
                <Row
                  key={`${item.name} ${shown.etag}`}
                  item={item}
                  staged={staged[item.name]}
                  reason={reason}
                  busy={busy}
                  stage={(c) => stage(item.name, c)}
                  save={() => commit([item.name], base)}
                />
              ))}
            </Paper>
          </section>
        );
      })}
      {error && !reviewing ? <Failure error={error} /> : null}
      {names.length > 0 && (
        <Paper withBorder shadow="md" p="sm" radius="md" pos="sticky" bottom={8} style={{ zIndex: 5 }} role="status">
          <Group justify="space-between">
            <Text size="sm" fw={600}>
              {t("config.staged", { n: names.length })}
            </Text>
            <Group gap="xs">
              <Button variant="default" onClick={() => setStaged({})}>
                {t("config.discard")}
              </Button>
              <Button onClick={() => setReviewing(true)}>{t("config.review")}</Button>
            </Group>
          </Group>
        </Paper>
      )}
      {reviewing && !clash && (
        <Dialog close={() => setReviewing(false)} title={t("config.review")} size="lg">
          <Diff items={base.items} staged={staged} />
          {error ? <Failure error={error} /> : null}
          <Group justify="flex-end" mt="md">
            <Button variant="default" onClick={() => setReviewing(false)}>
              {t("act.cancel")}
            </Button>
            <Button loading={busy} onClick={() => commit(names, base)}>
              {t("config.save", { n: names.length })}
            </Button>
          </Group>
        </Dialog>
      )}
      {clash && (
        <Clash
          list={clash.list}
          close={() => setClash(null)}
          busy={busy}
          mine={() => commit(clash.names, clash.now)}
          theirs={() => {
            setStaged({});
            setBase(clash.now);
            setClash(null);
            setReviewing(false);
          }}
        />
      )}
    </Stack>
  );
}

function Diff({ items, staged }: { items: Setting[]; staged: Staged }) {
  const t = useT();
  return (
    <Scroll label={t("config.review")}>
      <Table miw={460}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("config.setting")}</Table.Th>
            <Table.Th>{t("config.now")}</Table.Th>
            <Table.Th>{t("config.then")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items
            .filter((i) => i.name in staged)
            .map((i) => {
              const next = staged[i.name];
              return (
                <Table.Tr key={i.name}>
                  <Table.Td className="tw-mono">{i.name}</Table.Td>
                  <Table.Td>
                    <del>
                      <Value value={i.value} unit={i.unit} />
                    </del>
                  </Table.Td>
                  <Table.Td>
                    <ins>
                      {next === null || next === undefined ? (
                        <Value value={i.default} unit={i.unit} note={t("config.default")} />
                      ) : (
                        <Value value={next} unit={i.unit} />
                      )}
                    </ins>
                  </Table.Td>
                </Table.Tr>
              );
            })}
        </Table.Tbody>
      </Table>
    </Scroll>
  );
}

function Value({ value, unit, note }: { value: string; unit: string | null; note?: string }) {
  const words = settingInWords(value, unit);
  return (
    <span>
      <span className="tw-mono">{value === "" ? '""' : value}</span>{" "}
      {(words || unit || note) && (
        <Text span size="xs" c="dimmed">
          {[words || unit, note].filter(Boolean).join(" · ")}
        </Text>
      )}
    </span>
  );
}

function Clash({
  list,
  close,
  mine,
  theirs,
  busy,
}: {
  list: Conflict[];
  close: () => void;
  mine: () => void;
  theirs: () => void;
  busy: boolean;
}) {
  const t = useT();
  return (
    <Dialog close={close} size="xl" title={t("clash.title")}>
      <Stack>
        <Alert color="yellow" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
          {t("clash.text")}
        </Alert>
        <Scroll label={t("clash.title")}>
          <Table miw={560}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("config.setting")}</Table.Th>
                <Table.Th>{t("clash.was")}</Table.Th>
                <Table.Th>{t("clash.theirs")}</Table.Th>
                <Table.Th>{t("clash.mine")}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.map((c) => (
                <Table.Tr key={c.name}>
                  <Table.Td className="tw-mono">{c.name}</Table.Td>
                  <Table.Td className="tw-mono">{c.was}</Table.Td>
                  <Table.Td className="tw-mono">{c.theirs}</Table.Td>
                  <Table.Td className="tw-mono">
                    {c.mine ?? (
                      <Text span c="dimmed" size="sm">
                        {t("clash.untouched")}
                      </Text>
                    )}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Scroll>
        <Group justify="flex-end">
          <Button variant="default" onClick={theirs}>
            {t("clash.takeTheirs")}
          </Button>
          <Button loading={busy} onClick={mine}>
            {t("clash.saveMine")}
          </Button>
        </Group>
      </Stack>
    </Dialog>
  );
}

const sources: Record<Setting["source"], Key> = {
  default: "config.source.default",
  topic: "config.source.topic",
  cluster: "config.source.cluster",
};

interface RowProps {
  item: Setting;
  staged: string | null | undefined;
  reason: Reason;
  busy: boolean;
  stage: (change: string | null | undefined) => void;
  save: () => void;
}

function Row({ item, staged, reason, busy, stage, save }: RowProps) {
  const t = useT();
  const [editing, setEditing] = useState(false);
  const changed = staged !== undefined;
  const value = staged === null ? item.default : (staged ?? item.value);
  const fault = staged ? faultOf(item, staged) : null;
  return (
    <div className="tw-setting" data-changed={changed}>
      <div>
        <Group gap="xs">
          <Text fw={600} className="tw-mono" id={`s-${item.name}`} style={{ overflowWrap: "anywhere" }}>
            {item.name}
          </Text>
          <Badge size="sm" variant={item.source === "default" ? "default" : "light"} tt="none" c="inherit">
            {t(sources[item.source])}
          </Badge>
        </Group>
        <Text size="sm" c="dimmed">
          {item.doc}
        </Text>
      </div>
      <Stack gap={4}>
        {editing || changed ? (
          <Editor
            item={item}
            value={value}
            onChange={stage}
            error={fault ? t(`fault.${fault}`, { min: item.min ?? "", max: item.max ?? "" }) : undefined}
          />
        ) : (
          <Value value={item.value} unit={item.unit} />
        )}
        {(editing || changed) && (
          <Text size="xs" c="dimmed">
            {[
              settingInWords(value, item.unit) || item.unit,
              `${t("config.default")} ${item.default}`,
              item.min !== null ? `≥ ${item.min}` : "",
              item.max !== null && item.max < 2 ** 53 ? `≤ ${item.max}` : "",
            ]
              .filter(Boolean)
              .join(" · ")}
          </Text>
        )}
        <Group gap={4}>
          {!editing && !changed && (
            <GatedButton
              reason={reason}
              size="compact-xs"
              variant="default"
              onClick={() => setEditing(true)}
              aria-label={t("config.editOne", { name: item.name })}
            >
              {t("act.edit")}
            </GatedButton>
          )}
          {changed && (
            <Button
              size="compact-xs"
              disabled={fault !== null}
              loading={busy}
              onClick={save}
              aria-label={t("config.saveOne", { name: item.name })}
            >
              {t("config.saveKey")}
            </Button>
          )}
          {(editing || changed) && (
            <Button
              size="compact-xs"
              variant="subtle"
              onClick={() => {
                setEditing(false);
                stage(undefined);
              }}
            >
              {t("act.cancel")}
            </Button>
          )}
          {item.source !== "default" && staged !== null && (
            <GatedButton reason={reason} size="compact-xs" variant="subtle" onClick={() => stage(null)}>
              {t("config.reset")}
            </GatedButton>
          )}
        </Group>
      </Stack>
    </div>
  );
}

function Editor({ item, value, onChange, error }: { item: Setting; value: string; onChange: (value: string) => void; error?: string }) {
  const label = { "aria-labelledby": `s-${item.name}` };
  if (item.type === "boolean")
    return <Switch {...label} checked={value === "true"} label={value} onChange={(e) => onChange(String(e.currentTarget.checked))} />;
  if (item.type === "list" && item.allowed_values.length > 0)
    return (
      <MultiSelect {...label} data={item.allowed_values} value={value.split(",").filter(Boolean)} onChange={(v) => onChange(v.join(","))} />
    );
  if (item.allowed_values.length > 0)
    return <Select {...label} data={item.allowed_values} value={value} allowDeselect={false} onChange={(v) => v !== null && onChange(v)} />;
  return (
    <TextInput
      {...label}
      value={value}
      error={error}
      onChange={(e) => onChange(e.currentTarget.value)}
      spellCheck={false}
      inputMode={item.type === "string" || item.type === "list" ? "text" : "decimal"}
      classNames={{ input: "tw-mono" }}
    />
  );
}
