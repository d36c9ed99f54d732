import type { TimeMode } from "../lib/format";
import { rememberedStore } from "../lib/store";

export const timeMode = rememberedStore<TimeMode>("tidewire.time", ["local", "utc", "relative"], "local");
