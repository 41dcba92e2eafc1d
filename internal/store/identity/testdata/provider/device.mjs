// A real OpenID provider with one public client, for sign-ins by device flow. It accepts any name without a
// password. Access tokens are valid for TOKEN_TTL seconds. The program prints its address when it is ready, and
// exits when its standard input is closed.
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
    client_id: 'ambit', application_type: 'native', token_endpoint_auth_method: 'none', id_token_signed_response_alg: 'ES256',
    grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'], redirect_uris: [], response_types: [],
  }],
  ttl: { AccessToken: Number(process.env.TOKEN_TTL), DeviceCode: 600 },
  rotateRefreshToken: true,
  features: { deviceFlow: { enabled: true }, revocation: { enabled: true }, introspection: { enabled: false } },
})
server.on('request', provider.callback())
console.log(issuer)
process.stdin.resume().on('end', () => process.exit(0))
