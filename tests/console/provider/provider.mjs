// An OpenID Connect provider for the tests: node provider.mjs ADDRESS_OF_THE_CONSOLE …
// Everyone signs in with a user name and any password. It prints its issuer when it is ready.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const USERS = {
  olga: { groups: ["staff", "operators"], email: "olga@example.com", email_verified: true },
  rita: { groups: ["staff"], email: "rita@example.com", email_verified: true },
  gus: { groups: ["guests"], email: "olga@example.com", email_verified: false },
  nemo: { email: "nemo@example.com", email_verified: true },
};
const redirect_uris = process.argv.slice(2).map((address) => `${address}/oidc/callback`);
const common = { grant_types: ["authorization_code"], response_types: ["code"], redirect_uris };
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      { ...common, client_id: "console", client_secret: "a-secret-of-the-tests" },
      { ...common, client_id: "public", token_endpoint_auth_method: "none" },
    ],
    claims: { openid: ["sub"], email: ["email", "email_verified"], groups: ["groups"] },
    cookies: { keys: ["a-key-of-the-tests"] },
    ttl: { AccessToken: 60, Grant: 600, IdToken: 60, Interaction: 600, Session: 600 },
    pkce: { required: () => true },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...USERS[sub] }) }),
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
