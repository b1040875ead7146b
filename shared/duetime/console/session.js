// Who uses the page: the API key, if the server asks for one, its tenant and its role.
//
// The key lives in this tab alone: in memory and in sessionStorage, and it leaves only as the Authorization header.

const STORED = "duetime.session";
const RANKS = { reader: 0, writer: 1, admin: 2 };

const state = { key: null, tenant: null, role: null, openTenant: "default", namespace: null };
let onRefused = () => {};

function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(STORED)) ?? {};
  } catch {
    return {};
  }
}

function store() {
  try {
    sessionStorage.setItem(STORED, JSON.stringify(state));
  } catch {
    // Storage may be switched off: then a reload asks for the key again.
  }
}

export function restore() {
  for (const [name, value] of Object.entries(stored())) if (name in state) state[name] = value;
}

export const key = () => state.key;
export const role = () => state.role;

/** Whether requests carry a key: then the tenant is the key's, and not to be chosen. */
export const isSignedIn = () => state.key !== null;

export const tenant = () => state.tenant ?? state.openTenant;
export const namespace = () => state.namespace;

/** Whether the key's role suffices. Without a key everything is allowed. */
export function may(needed) {
  return state.role === null || RANKS[state.role] >= RANKS[needed];
}

export function signIn(found) {
  Object.assign(state, { namespace: null }, found);
  store();
}

export function signOut() {
  Object.assign(state, { key: null, tenant: null, role: null, namespace: null });
  store();
}

/** The tenant and the namespace that pages without one begin with. */
export function remember(found) {
  if (found.tenant !== undefined && !isSignedIn()) state.openTenant = found.tenant;
  if (found.namespace !== undefined) state.namespace = found.namespace;
  store();
}

export function whenRefused(listener) {
  onRefused = listener;
}

/** The server does not take the key, or asks for one. */
export function refused(problem) {
  signOut();
  onRefused(problem);
}
