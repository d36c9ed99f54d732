import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { asProblem } from "../api/problem";
import { useT } from "../i18n";
import { Dialog } from "./dialog";
import { Failure } from "./states";

interface DangerProps {
  title: string;
  /** What will be lost or changed. */
  impact: ReactNode;
  /** The name to type first; without it a click is enough. */
  name?: string;
  action: string;
  run: () => Promise<unknown>;
  close: () => void;
}

/** The upper steps of the danger ladder: confirm with the impact, or type the name too. */
export function Danger({ title, impact, name, action, run, close }: DangerProps) {
  const t = useT();
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const ready = !name || typed === name;
  const submit = async () => {
    if (!ready || busy) return;
    setBusy(true);
    setError(null);
    try {
      await run();
      close();
    } catch (problem) {
      setError(asProblem(problem));
      setBusy(false);
    }
  };
  return (
    <Dialog close={close} title={title} asks={false}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <Stack>
          <Text size="sm" component="div">
            {impact}
          </Text>
          {name && (
            <TextInput
              label={t("danger.type", { name })}
              value={typed}
              onChange={(e) => setTyped(e.currentTarget.value)}
              data-autofocus
              autoComplete="off"
              spellCheck={false}
            />
          )}
          {error ? <Failure error={error} /> : null}
          <Group justify="flex-end">
            <Button variant="default" onClick={close}>
              {t("act.cancel")}
            </Button>
            <Button color="red" variant="filled" type="submit" disabled={!ready} loading={busy}>
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}
