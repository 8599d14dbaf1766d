s/--commit [0-9a-f]\{40\}/--commit "$(git -C "$GIT\/infra\/code.git" rev-parse main)"/
