package api

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tidewire/internal/testkit/nodekit"
)

func (a *api) tokens(username, password string) object {
	a.t.Helper()
	x := a.as("", "POST", "/v1/auth/login", object{"username": username, "password": password})
	require.Equal(a.t, "no-store", x.Header.Get("Cache-Control"))
	return decoded(a.t, x, 200)
}

func (a *api) refresh(token any) *answer {
	a.t.Helper()
	return a.as("", "POST", "/v1/auth/refresh", object{"refresh_token": token})
}

func TestLoginGivesTokensInTheFormOfOAuth(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	got := a.tokens("admin", nodekit.AdminPassword)
	require.Equal(t, "Bearer", got["token_type"])
	require.Equal(t, "900", got["expires_in"].(interface{ String() string }).String())
	token := got["access_token"].(string)
	me := decoded(t, a.as(token, "GET", "/v1/auth/me", nil), 200)
	require.Equal(t, "admin", me["username"])
	require.Equal(t, true, me["admin"])
	require.Nil(t, me["csrf_token"])
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, me["expires_at"])
}

func TestABadLoginDoesNotTellWhy(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.user("login.disabled")
	wants(t, a.patch(path, object{"disabled": true}), 200, "")
	details := map[any]bool{}
	for _, body := range []object{
		{"username": "admin", "password": "wrong"},
		{"username": "admin", "password": nodekit.AdminPassword + " "},
		{"username": "Admin", "password": nodekit.AdminPassword},
		{"username": "nobody-at-all", "password": "wrong"},
		{"username": "login.disabled", "password": userPassword},
	} {
		x := wants(t, a.as("", "POST", "/v1/auth/login", body), 401, "bad-credentials")
		var p object
		x.JSON(t, &p)
		details[p["detail"]] = true
		require.Equal(t, "not-applied", p["outcome"])
	}
	require.Len(t, details, 1)
}

func TestRefreshRotatesAndReuseRevokesTheFamily(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	a.user("refresher")
	first := a.tokens("refresher", userPassword)
	other := a.tokens("refresher", userPassword) // another session of the same user
	second := decoded(t, a.refresh(first["refresh_token"]), 200)
	require.NotEqual(t, first["refresh_token"], second["refresh_token"])
	me := func(token any) *answer { return a.as(token.(string), "GET", "/v1/auth/me", nil) }
	wants(t, me(first["access_token"]), 200, "")
	third := decoded(t, a.refresh(second["refresh_token"]), 200)
	wants(t, a.refresh(first["refresh_token"]), 401, "unauthenticated") // used long ago
	for _, x := range []object{first, second, third} {
		wants(t, me(x["access_token"]), 401, "unauthenticated")
		wants(t, a.refresh(x["refresh_token"]), 401, "unauthenticated")
	}
	wants(t, me(other["access_token"]), 200, "")
	for _, bad := range []string{"x", "twr_", other["access_token"].(string), other["refresh_token"].(string) + "a"} {
		wants(t, a.refresh(bad), 401, "unauthenticated")
	}
	wants(t, me(other["access_token"]), 200, "")
}

func TestARefreshTokenEndsWithItsTime(t *testing.T) {
	t.Parallel()
	c := &clock{}
	a := newAPI(t, nodekit.StartWith(t, nodekit.Options{Now: c.now}), "")
	got := a.tokens("admin", nodekit.AdminPassword)
	c.advance(29 * 24 * time.Hour)
	got = decoded(t, a.refresh(got["refresh_token"]), 200)
	c.advance(31 * 24 * time.Hour)
	require.Equal(t, 401, a.refresh(got["refresh_token"]).Status)
}

func TestLogoutEndsTheSessionAndNoOther(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	one, two := a.tokens("admin", nodekit.AdminPassword), a.tokens("admin", nodekit.AdminPassword)
	wants(t, a.as(one["access_token"].(string), "POST", "/v1/auth/logout", nil), 204, "")
	wants(t, a.as(one["access_token"].(string), "GET", "/v1/auth/me", nil), 401, "unauthenticated")
	wants(t, a.refresh(one["refresh_token"]), 401, "unauthenticated")
	wants(t, a.as(two["access_token"].(string), "GET", "/v1/auth/me", nil), 200, "")
}

func TestAPasswordOfOnesOwnNeedsTheCurrentOne(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.user("changer")
	token := a.login("changer")
	x := wants(t, a.as(token, "POST", path+"/set-password", object{"password": "a new password"}), 422, "invalid-argument")
	require.Equal(t, []string{"/current_password"}, pointers(t, x))
	wants(t, a.as(token, "POST", path+"/set-password", object{"password": "a new password", "current_password": "wrong"}), 401, "bad-credentials")
	x = wants(t, a.as(token, "POST", path+"/set-password", object{"password": "", "current_password": userPassword}), 422, "invalid-argument")
	require.Equal(t, []string{"/password"}, pointers(t, x))
	wants(t, a.as(token, "POST", "/v1/users/admin/set-password", object{"password": "a new password", "current_password": userPassword}), 403, "forbidden")
	wants(t, a.as(token, "POST", path+"/set-password", object{"password": "a new password", "current_password": userPassword}), 204, "")
	wants(t, a.as(token, "GET", "/v1/auth/me", nil), 401, "unauthenticated")
	wants(t, a.as("", "POST", "/v1/auth/login", object{"username": "changer", "password": userPassword}), 401, "bad-credentials")
	a.tokens("changer", "a new password")
}

func TestRightsFollowTheAdminFlagAtOnce(t *testing.T) {
	t.Parallel()
	a := sharedAPI(t)
	path := a.user("promoted")
	token := a.login("promoted")
	wants(t, a.as(token, "GET", "/v1/users", nil), 403, "forbidden")
	wants(t, a.patch(path, object{"admin": true}), 200, "")
	wants(t, a.as(token, "GET", "/v1/users", nil), 200, "")
	wants(t, a.patch(path, object{"admin": false}), 200, "")
	wants(t, a.as(token, "GET", "/v1/users", nil), 403, "forbidden")
}

func TestTheLastAdministratorStaysOne(t *testing.T) {
	t.Parallel()
	a := ownAPI(t)
	wants(t, a.patch("/v1/users/admin", object{"admin": false}), 409, "last-admin")
	wants(t, a.patch("/v1/users/admin", object{"disabled": true}), 409, "last-admin")
	wants(t, a.remove("/v1/users/admin"), 409, "last-admin")
	wants(t, a.remove("/v1/users/admin?dry_run=true"), 409, "last-admin")
	second := a.user("second")
	wants(t, a.patch(second, object{"admin": true, "disabled": true}), 200, "")
	wants(t, a.remove("/v1/users/admin"), 409, "last-admin") // a disabled one does not count
	wants(t, a.patch(second, object{"disabled": false}), 200, "")
	wants(t, a.patch("/v1/users/admin", object{"admin": false}), 200, "")
	token := a.login("second")
	wants(t, a.as(token, "DELETE", second, nil), 409, "last-admin")
	wants(t, a.as(token, "DELETE", "/v1/users/admin", nil), 204, "")
}

var setupToken = regexp.MustCompile(`/ui/setup\?token=([\w-]+)`)

func TestTheSetupMakesTheFirstAdministrator(t *testing.T) {
	t.Parallel()
	n := nodekit.StartWith(t, nodekit.Options{NoAdmin: true})
	n.Observe = observer("")
	a := &api{Node: n, t: t}
	setup := func(token, username, password string) *answer {
		return a.as("", "POST", "/v1/setup", object{"token": token, "username": username, "password": password})
	}
	require.Equal(t, true, decoded(t, a.as("", "GET", "/v1/setup", nil), 200)["required"])
	found := setupToken.FindStringSubmatch(n.Log.String())
	require.Len(t, found, 2)
	wants(t, setup("wrong", "root", userPassword), 401, "bad-credentials")
	x := wants(t, setup(found[1], "", userPassword), 422, "invalid-argument")
	require.Equal(t, []string{"/username"}, pointers(t, x))
	x = wants(t, setup(found[1], "root", "short"), 422, "invalid-argument")
	require.Equal(t, []string{"/password"}, pointers(t, x))
	wants(t, a.as("", "POST", "/v1/auth/login", object{"username": "root", "password": userPassword}), 401, "bad-credentials")
	x = wants(t, setup(found[1], "root", userPassword), 201, "")
	require.Equal(t, "/v1/users/root", x.Header.Get("Location"))
	require.NotEmpty(t, x.Header.Get("ETag"))
	require.Equal(t, false, decoded(t, a.as("", "GET", "/v1/setup", nil), 200)["required"])
	wants(t, setup(found[1], "root2", userPassword), 409, "conflict")
	a.admin = a.login("root")
	require.Equal(t, true, decoded(t, a.get("/v1/users/root"), 200)["admin"])
}
