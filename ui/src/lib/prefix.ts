/** The path prefix under which the node is reached, without a slash at its end. */
export const prefix: string = document.querySelector<HTMLMetaElement>('meta[name="tidewire-prefix"]')?.content ?? "";

/** The nonce of this page's content security policy; empty where the page has none. */
export const nonce: string = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]')?.nonce ?? "";
