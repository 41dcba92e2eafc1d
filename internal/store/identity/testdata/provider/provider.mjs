// A real OpenID provider with one client, which gets JWT access tokens. The program prints its address when it
// is ready, and exits when its standard input is closed.
import { createServer } from 'node:http'
import { exportJWK, generateKeyPair } from 'jose'
import Provider from 'oidc-provider'

const server = createServer()
await new Promise(ready => server.listen(0, '127.0.0.1', ready))
const issuer = 'http://127.0.0.1:' + server.address().port

const keys = []
for (const alg of ['ES256', 'RS256']) {
  const { privateKey } = await generateKeyPair(alg, { extractable: true })
  keys.push({ ...(await exportJWK(privateKey)), alg, use: 'sig', kid: alg.toLowerCase() })
}
const audience = { 'urn:ambit': 'ambit', 'urn:other': 'other' }
const provider = new Provider(issuer, {
  jwks: { keys },
  clients: [{ client_id: 'ada', client_secret: process.env.CLIENT_SECRET, grant_types: ['client_credentials'], redirect_uris: [], response_types: [] }],
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: 'use', audience: audience[resource], accessTokenTTL: 600, accessTokenFormat: 'jwt',
        jwt: { sign: { alg: ctx.oidc.params.scope === 'use' ? 'RS256' : 'ES256' } },
      }),
    },
  },
})
server.on('request', provider.callback())
console.log(issuer)
process.stdin.resume().on('end', () => process.exit(0))
