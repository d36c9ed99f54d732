import { Anchor, Modal, Stack, Text } from "@mantine/core";
import { useEffect } from "react";
import { sameAgain } from "../api/client";
import { useT } from "../i18n";
import { useStore } from "../lib/store";
import { useWayBack } from "../parts/dialog";
import { LoginForm } from "../parts/loginForm";
import { queryClient } from "./queries";
import { session } from "./session";

/** The login over a page whose session has ended: the page below, and what was typed in it, stay. */
export default function LoginAgain() {
  const t = useT();
  const { me } = useStore(session);
  useWayBack();
  // Somebody may log in again in another tab, which is enough for this one.
  useEffect(() => {
    const look = () => {
      if (document.hidden) return;
      void sameAgain().then((same) => {
        if (same) void queryClient.invalidateQueries();
      });
    };
    window.addEventListener("storage", look);
    window.addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    const timer = setInterval(look, 5000);
    return () => {
      window.removeEventListener("storage", look);
      window.removeEventListener("focus", look);
      document.removeEventListener("visibilitychange", look);
      clearInterval(timer);
    };
  }, []);
  return (
    <Modal
      opened
      onClose={() => undefined}
      withCloseButton={false}
      closeOnEscape={false}
      closeOnClickOutside={false}
      returnFocus={false}
      title={t("again.title")}
      zIndex={400}
    >
      <Stack>
        <Text size="sm">{t("again.text")}</Text>
        <LoginForm
          username={me?.username ?? ""}
          onDone={(next) => {
            const other = next.username !== me?.username;
            session.set({ state: "in", me: next });
            if (other) void queryClient.resetQueries();
            else void queryClient.invalidateQueries();
          }}
        />
        <Anchor component="button" type="button" size="sm" onClick={() => session.set({ state: "out", me: null })}>
          {t("again.leave")}
        </Anchor>
      </Stack>
    </Modal>
  );
}
