/** Gives a blob to the browser as a download. */
export function saveBlob(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^A-Za-z0-9._-]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
