"use strict";
// The setup of a node's first administrator: POST /v1/setup with the token of the address.
const form = document.getElementById("setup");
const outcome = document.getElementById("outcome");
const token = new URLSearchParams(location.search).get("token");

if (!token) outcome.textContent = "This address has no token. The node printed the whole address when it started.";

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  outcome.textContent = "One moment…";
  try {
    const answer = await fetch("../v1/setup", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token, username: form.username.value, password: form.password.value }),
    });
    const body = await answer.json();
    if (answer.ok) {
      form.hidden = true;
      outcome.textContent = `The administrator ${body.username} is there. Log in with: tidewire login ${location.origin} --username ${body.username}`;
    } else {
      outcome.textContent = body.detail;
    }
  } catch (error) {
    outcome.textContent = `The node did not answer: ${error.message}`;
  }
});
