import { Button, Group, Stack, Table, Text } from "@mantine/core";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useT } from "../i18n";
import { count } from "../lib/format";
import { copies, type PlanRow } from "../lib/moves";
import { Dialog } from "./dialog";
import { Scroll } from "./scroll";
import { Failure, Loading } from "./states";

/** The partitions of a plan with their replicas, before and after. */
export function PlanTable({ rows, label }: { rows: PlanRow[]; label: string }) {
  const t = useT();
  const [shown, setShown] = useState(100);
  return (
    <Stack gap="xs">
      <Scroll label={label}>
        <Table miw={420} aria-label={label}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("topic.partition")}</Table.Th>
              <Table.Th>{t("moves.from")}</Table.Th>
              <Table.Th>{t("moves.to")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.slice(0, shown).map((r) => (
              <Table.Tr key={`${r.topic}:${r.partition}`}>
                <Table.Td style={{ overflowWrap: "anywhere" }}>
                  {r.topic}:{r.partition}
                  {r.problem && (
                    <Text size="xs" className="tw-bad">
                      {r.problem}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td>{r.from.join(", ") || "–"}</Table.Td>
                <Table.Td>{r.to.join(", ") || "–"}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Scroll>
      {rows.length > shown && (
        <Group>
          <Button variant="default" size="compact-sm" onClick={() => setShown(shown + 500)}>
            {t("offsets.more", { n: rows.length - shown })}
          </Button>
        </Group>
      )}
    </Stack>
  );
}

interface PlannedProps {
  title: string;
  /** What it does, in words. */
  text: ReactNode;
  /** What is asked for; a plan is for what was asked when it was made. */
  form?: ReactNode;
  input?: string;
  ready?: boolean;
  plan: () => Promise<PlanRow[]>;
  action: string;
  /** Also where the plan has nothing to move. */
  always?: boolean;
  color?: string;
  run: () => Promise<unknown>;
  close: () => void;
}

/** A change in two steps: the node's own plan first, then the change. Without a form the plan comes at once. */
export function Planned({ title, text, form, input = "", ready = true, plan, action, always, color, run, close }: PlannedProps) {
  const t = useT();
  const [made, setMade] = useState<{ rows: PlanRow[]; input: string } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState<"plan" | "run" | null>(null);
  const rows = made && made.input === input ? made.rows : null;
  const attempt = async (step: "plan" | "run", act: () => Promise<unknown>) => {
    setBusy(step);
    setError(null);
    try {
      await act();
      if (step === "run") close();
    } catch (e) {
      setError(e);
    }
    setBusy(null);
  };
  const look = () => attempt("plan", async () => setMade({ rows: await plan(), input }));
  const first = useRef(look);
  const atOnce = !form;
  useEffect(() => {
    if (atOnce) void first.current();
  }, [atOnce]);
  const good = rows?.filter((r) => !r.problem) ?? [];
  return (
    <Dialog close={close} title={title} size="lg">
      <Stack>
        <Text size="sm" component="div">
          {text}
        </Text>
        {form}
        {busy === "plan" && !rows && <Loading rows={2} />}
        {rows && (
          <Stack gap="xs" role="status">
            <Text size="sm" fw={600}>
              {rows.length === 0 ? t("moves.nothing") : t("moves.sum", { n: rows.length, copies: count(copies(good)) })}
            </Text>
            {rows.length > 0 && <PlanTable rows={rows} label={t("moves.plan")} />}
          </Stack>
        )}
        {error ? <Failure error={error} retry={atOnce && !rows ? () => void look() : undefined} /> : null}
        <Group justify="flex-end">
          <Button variant="default" onClick={close}>
            {t("act.cancel")}
          </Button>
          {form && (
            <Button variant={rows ? "default" : "filled"} onClick={() => void look()} disabled={!ready} loading={busy === "plan"}>
              {t("reset.plan")}
            </Button>
          )}
          {(rows || !form) && (
            <Button
              color={color}
              disabled={!rows || (good.length === 0 && !always)}
              loading={busy === "run"}
              onClick={() => void attempt("run", run)}
            >
              {action}
            </Button>
          )}
        </Group>
      </Stack>
    </Dialog>
  );
}
