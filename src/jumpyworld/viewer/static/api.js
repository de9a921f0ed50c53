// Talking to the server: JSON by POST, one websocket while playing.

// The token stands behind '#', which browsers never send; it is kept for this tab alone.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token");
const headers = { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) };

export async function status() {
  const answer = await fetch("/api/status", { headers });
  if (answer.status === 401) throw new Error("this page needs the token of its server: open the address it printed");
  return answer.json();
}

export async function ask(name, body) {
  const answer = await fetch(`/api/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (answer.ok) return answer.headers.get("content-type").startsWith("image/") ? answer.blob() : answer.json();
  const error = new Error((await answer.json().catch(() => ({}))).error || `the server answered ${answer.status}`);
  error.retry = answer.status === 503;
  throw error;
}

// Frames come until the server says it is done or `stop` is called.
export function play(wish, { frame, done }) {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${location.host}/api/play`);
  let why = "";
  socket.onopen = () => socket.send(JSON.stringify({ ...wish, ...(token ? { token } : {}) }));
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.done) why = message.done;
    else frame(message);
  };
  socket.onclose = () => done(why);
  return {
    stop: () => socket.close(),
    pace: (speed) => socket.readyState === WebSocket.OPEN && socket.send(JSON.stringify({ speed })),
  };
}
