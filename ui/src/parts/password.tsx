import { Button, Group, PasswordInput, Stack } from "@mantine/core";
import { useState } from "react";
import { api, take } from "../api/client";
import { useT } from "../i18n";
import { Dialog } from "./dialog";
import { Failure } from "./states";
import { done } from "./toast";

/** Sets a password; one's own needs the current one, and ends one's other sessions. */
export function PasswordForm({ username, own, onDone }: { username: string; own: boolean; onDone?: () => void }) {
  const t = useT();
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const short = password !== "" && password.length < 8;
  const toggle = { "aria-label": t("login.show") };
  return (
    <form
      onSubmit={async (e) => {
        e.preventDefault();
        setBusy(true);
        setError(null);
        try {
          await take(
            api.POST("/v1/users/{username}/set-password", {
              params: { path: { username } },
              body: { password, ...(own ? { current_password: current } : {}) },
            }),
          );
          done(t("user.passwordSet", { name: username }));
          setCurrent("");
          setPassword("");
          onDone?.();
        } catch (problem) {
          setError(problem);
        } finally {
          setBusy(false);
        }
      }}
    >
      <Stack>
        <input type="text" name="username" autoComplete="username" value={username} readOnly hidden />
        {own && (
          <PasswordInput
            label={t("user.currentPassword")}
            value={current}
            onChange={(e) => setCurrent(e.currentTarget.value)}
            autoComplete="current-password"
            required
            withAsterisk={false}
            visibilityToggleButtonProps={toggle}
          />
        )}
        <PasswordInput
          label={t("user.newPassword")}
          description={t("user.passwordRule")}
          error={short ? t("user.passwordShort") : undefined}
          value={password}
          onChange={(e) => setPassword(e.currentTarget.value)}
          autoComplete="new-password"
          required
          withAsterisk={false}
          visibilityToggleButtonProps={toggle}
        />
        {error ? <Failure error={error} /> : null}
        <Group>
          <Button type="submit" loading={busy} disabled={password.length < 8}>
            {t("user.setPassword")}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

export function PasswordDialog({ username, own, close }: { username: string; own: boolean; close: () => void }) {
  const t = useT();
  return (
    <Dialog close={close} title={`${t("user.setPassword")}: ${username}`}>
      <PasswordForm username={username} own={own} onDone={close} />
    </Dialog>
  );
}
