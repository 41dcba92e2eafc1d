// getJSON fetches one JSON document over https.
//
// A sandbox may allow traffic only through a proxy. Node's own fetch does not
// read HTTPS_PROXY in every supported version, so the tunnel is opened here.

import http from "node:http";
import https from "node:https";
import tls from "node:tls";

const TIMEOUT_MS = 15_000;
const MAX_BYTES = 8 * 1024 * 1024;

export async function getJSON(address, headers = {}) {
  const url = new URL(address);
  const proxy = process.env.HTTPS_PROXY || process.env.https_proxy;
  const options = { headers, defaultPort: 443, timeout: TIMEOUT_MS };
  if (proxy) {
    const socket = await tunnel(new URL(proxy), url);
    options.createConnection = () => tls.connect({ socket, servername: url.hostname });
  }
  const { status, body } = await get(url, options);
  if (status !== 200) throw new Error(`${url.host} answered ${status}${reason(body)}`);
  return JSON.parse(body);
}

function get(url, options) {
  return new Promise((resolve, reject) => {
    const request = https.get(url, options, (response) => {
      const chunks = [];
      let size = 0;
      response.on("data", (chunk) => {
        size += chunk.length;
        if (size > MAX_BYTES) response.destroy(new Error(`${url.host} sent more than ${MAX_BYTES} bytes`));
        else chunks.push(chunk);
      });
      response.on("end", () => resolve({ status: response.statusCode, body: Buffer.concat(chunks).toString("utf8") }));
      response.on("error", reject);
    });
    request.on("timeout", () => request.destroy(new Error(`${url.host} did not answer in time`)));
    request.on("error", reject);
  });
}

function tunnel(proxy, target) {
  const host = `${target.hostname}:${target.port || 443}`;
  const headers = { Host: host };
  if (proxy.username) {
    const login = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
    headers["Proxy-Authorization"] = `Basic ${Buffer.from(login).toString("base64")}`;
  }
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: proxy.hostname,
      port: proxy.port || 80,
      method: "CONNECT",
      path: host,
      headers,
      timeout: TIMEOUT_MS,
    });
    request.on("connect", (response, socket) => {
      if (response.statusCode === 200) return resolve(socket);
      socket.destroy();
      reject(new Error(`the proxy refused ${host} with ${response.statusCode}`));
    });
    request.on("timeout", () => request.destroy(new Error("the proxy did not answer in time")));
    request.on("error", reject);
    request.end();
  });
}

function reason(body) {
  try {
    const { message } = JSON.parse(body);
    return typeof message === "string" ? `: ${message}` : "";
  } catch {
    return "";
  }
}
