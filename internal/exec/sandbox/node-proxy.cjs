// Makes node's https and fetch use the sandbox's proxy, because older versions of node
// ignore HTTPS_PROXY.
'use strict';
const http = require('http');
const https = require('https');
const tls = require('tls');

const proxy = { host: '127.0.0.1', port: 3128 };

// tunnel opens a TLS connection to host and port through the proxy.
function tunnel(host, port, options, done) {
  const req = http.request({ ...proxy, agent: false, method: 'CONNECT', path: `${host}:${port}`, headers: { Host: `${host}:${port}` } });
  req.once('error', done);
  req.once('response', (res) => {
    res.resume();
    done(new Error(`the sandbox refused the connection to ${host}:${port} (${res.statusCode})`));
  });
  req.once('connect', (res, socket) => {
    if (res.statusCode !== 200) {
      socket.destroy();
      done(new Error(`the sandbox refused the connection to ${host}:${port} (${res.statusCode})`));
      return;
    }
    const secure = tls.connect({ ...options, socket, servername: options.servername || host });
    secure.once('error', done);
    secure.once('secureConnect', () => {
      secure.removeListener('error', done);
      done(null, secure);
    });
  });
  req.end();
}

const local = (host) => host === 'localhost' || host === '::1' || /^127\./.test(host);

const direct = https.Agent.prototype.createConnection;
https.Agent.prototype.createConnection = function createConnection(options, done) {
  const host = options.host || options.hostname;
  if (options.socketPath || !host || local(host) || typeof done !== 'function') return direct.call(this, options, done);
  const { path, socket, ...rest } = options;
  tunnel(host, options.port || 443, rest, done);
};

// fetch gets its connections from a dispatcher. The dispatcher's class is reachable only
// through the current dispatcher, which exists once fetch has been loaded.
const key = Symbol.for('undici.globalDispatcher.1');
const plain = globalThis.fetch;
if (plain) {
  let ready = false;
  globalThis.fetch = function fetch(...args) {
    if (!ready) {
      ready = true;
      void globalThis.Headers;
      const Agent = globalThis[key] && globalThis[key].constructor;
      if (Agent) {
        const own = new Agent();
        const outside = new Agent({
          connect(options, done) {
            const { path, socket, httpSocket, hostname, protocol, port, host, ...rest } = options;
            tunnel(hostname, port || 443, { ...rest, ALPNProtocols: ['http/1.1'] }, done);
          },
        });
        outside.dispatch = ((dispatch) => function (options, handler) {
          const url = new URL(options.origin);
          if (url.protocol === 'http:' || local(url.hostname)) return own.dispatch(options, handler);
          return dispatch.call(this, options, handler);
        })(outside.dispatch);
        globalThis[key] = outside;
      }
    }
    return plain.apply(this, args);
  };
}
