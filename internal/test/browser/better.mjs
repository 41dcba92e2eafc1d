// A second real authorization server, with Better Auth. Clients register themselves. Its only user signs in with the name
// "ada". Access tokens are JWTs for the server RESOURCE, bound to the key of a DPoP proof, and valid for TOKEN_TTL seconds.
// A POST to /forget removes all sessions, consents and tokens. The program prints its address when it is ready, and exits
// when its standard input is closed.
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { oauthProvider, oauthProviderAuthServerMetadata } from '@better-auth/oauth-provider'
import { betterAuth } from 'better-auth'
import { memoryAdapter } from 'better-auth/adapters/memory'
import { toNodeHandler } from 'better-auth/node'
import { jwt } from 'better-auth/plugins'

const server = createServer()
await new Promise(ready => server.listen(0, '127.0.0.1', ready))
const origin = 'http://127.0.0.1:' + server.address().port

const tables = ['user', 'session', 'account', 'verification', 'jwks', 'oauthClient', 'oauthResource', 'oauthClientResource',
  'oauthClientAssertion', 'oauthRefreshToken', 'oauthAccessToken', 'oauthConsent']
const db = Object.fromEntries(tables.map(name => [name, []]))
const resource = process.env.RESOURCE
const auth = betterAuth({
  baseURL: origin, basePath: '/auth', secret: randomBytes(32).toString('hex'), database: memoryAdapter(db),
  emailAndPassword: { enabled: true }, logger: { level: 'warn' }, telemetry: { enabled: false },
  rateLimit: { enabled: false }, disabledPaths: ['/token'],
  plugins: [
    jwt(),
    oauthProvider({
      loginPage: '/sign-in', consentPage: '/consent', scopes: ['openid', 'offline_access', 'notes:read'],
      allowDynamicClientRegistration: true, allowUnauthenticatedClientRegistration: true,
      resources: [{ identifier: resource, dpopBoundAccessTokensRequired: true }],
      clientRegistrationDefaultResources: [resource], accessTokenExpiresIn: Number(process.env.TOKEN_TTL),
    }),
  ],
})
const email = name => name + '@example.com', password = 'a password for the test'
await auth.api.signUpEmail({ body: { name: 'Ada', email: email('ada'), password } })

// The pages post to Better Auth as its client library does, and go where the answer says.
const page = (title, fields, path, body) => `<!doctype html><title>${title}</title><h1>${title}</h1>
<form>${fields}<button type="submit">Continue</button></form><script>
document.forms[0].onsubmit = async event => {
  event.preventDefault()
  const field = name => document.forms[0].elements[name].value
  const answer = await fetch('/auth${path}', { method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ oauth_query: location.search.slice(1), ...(${body}) }) })
  const { url, redirect_uri, message } = await answer.json()
  document.querySelector('h1').textContent = message
  location.href = url ?? redirect_uri
}</script>`
const pages = {
  '/sign-in': page('Sign in', '<input name="login"><input name="password" type="password">', '/sign-in/email',
    `{ email: field('login') + '@example.com', password: field('password') }`),
  '/consent': page('Allow ambit', '', '/oauth2/consent', '{ accept: true }'),
}
const metadata = oauthProviderAuthServerMetadata(auth)
const rest = toNodeHandler(auth)
server.on('request', async (req, res) => {
  const { pathname } = new URL(req.url, origin)
  if (pathname === '/.well-known/oauth-authorization-server/auth') {
    res.setHeader('Content-Type', 'application/json').end(await (await metadata(new Request(origin + req.url))).text())
  } else if (pages[pathname]) {
    res.setHeader('Content-Type', 'text/html').end(pages[pathname])
  } else if (pathname === '/forget' && req.method === 'POST') {
    for (const name of ['session', 'oauthRefreshToken', 'oauthAccessToken', 'oauthConsent']) db[name].length = 0
    res.end()
  } else {
    rest(req, res)
  }
})
console.log(origin + '/auth')
process.stdin.resume().on('end', () => process.exit(0))
