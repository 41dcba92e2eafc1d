// A real authorization server for remote tool servers. Clients register themselves. It accepts any name without a
// password. Access tokens are valid for TOKEN_TTL seconds, and each refresh token works once. The client "server" with
// the secret "secret" can introspect tokens. A POST to /forget removes all grants. The program prints its address when it
// is ready, and exits when its standard input is closed.
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { exportJWK, generateKeyPair } from 'jose'
import Provider from 'oidc-provider'

const server = createServer()
await new Promise(ready => server.listen(0, '127.0.0.1', ready))
const issuer = 'http://127.0.0.1:' + server.address().port

const { privateKey } = await generateKeyPair('ES256', { extractable: true })
const provider = new Provider(issuer, {
  jwks: { keys: [{ ...(await exportJWK(privateKey)), alg: 'ES256', use: 'sig', kid: 'es256' }] },
  cookies: { keys: [randomBytes(32).toString('hex')] },
  clients: [{
    client_id: 'server', client_secret: 'secret', id_token_signed_response_alg: 'ES256', grant_types: [], redirect_uris: [],
    response_types: [],
  }],
  clientDefaults: { id_token_signed_response_alg: 'ES256' },
  scopes: ['openid', 'offline_access', 'notes:read'],
  rotateRefreshToken: true,
  features: {
    registration: { enabled: true }, revocation: { enabled: true }, introspection: { enabled: true, allowedPolicy: () => true },
    resourceIndicators: {
      enabled: true, defaultResource: () => undefined, useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: 'notes:read', audience: resource, accessTokenFormat: 'opaque', accessTokenTTL: Number(process.env.TOKEN_TTL),
      }),
    },
  },
})
const grants = new Set()
provider.on('grant.success', ctx => grants.add(ctx.oidc.entities.Grant))
const rest = provider.callback()
server.on('request', async (req, res) => {
  if (req.method !== 'POST' || req.url !== '/forget') return rest(req, res)
  for (const grant of grants) await grant.destroy()
  res.end()
})
console.log(issuer)
process.stdin.resume().on('end', () => process.exit(0))
