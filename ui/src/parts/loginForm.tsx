import { Alert, Button, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useState } from "react";
import { logIn } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Me } from "../app/session";
import { useT } from "../i18n";

/** What a login was refused for: a wrong password, too many of them, and a silent node are told apart. */
function useWords() {
  const t = useT();
  return (problem: Problem): string => {
    switch (problem.code) {
      case "bad-credentials":
        return t("login.wrong");
      case "login-locked":
        return t("login.locked", { seconds: problem.body.title ?? "" });
      case "unreachable":
        return t("problem.unreachable");
      case "cookie-refused":
        return t("login.cookie");
      default:
        return problem.message;
    }
  };
}

export function LoginForm({ username: initial, onDone }: { username: string; onDone: (me: Me) => void }) {
  const t = useT();
  const words = useWords();
  const [username, setUsername] = useState(initial);
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    setProblem(null);
    try {
      onDone(await logIn(username, password));
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        void submit();
      }}
    >
      <Stack>
        {problem && (
          <Alert color="red" variant="light" role="alert" styles={{ message: { color: "inherit" } }}>
            {words(problem)}
          </Alert>
        )}
        <TextInput
          label={t("login.username")}
          value={username}
          onChange={(e) => setUsername(e.currentTarget.value)}
          autoComplete="username"
          autoCapitalize="none"
          spellCheck={false}
          required
          withAsterisk={false}
          data-autofocus={initial === "" || undefined}
        />
        <PasswordInput
          label={t("login.password")}
          value={password}
          onChange={(e) => setPassword(e.currentTarget.value)}
          autoComplete="current-password"
          required
          withAsterisk={false}
          data-autofocus={initial !== "" || undefined}
          visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
        />
        <Button type="submit" loading={busy}>
          {t("login.submit")}
        </Button>
      </Stack>
    </form>
  );
}
