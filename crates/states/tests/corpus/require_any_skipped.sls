bad: test.fail_without_changes
blocked:
  test.nop:
    - require:
      - test: bad
skipped:
  test.nop:
    - onchanges:
      - test: quiet
quiet: test.nop
with skipped:
  test.nop:
    - require_any:
      - test: bad
      - test: skipped
with blocked:
  test.nop:
    - require_any:
      - test: blocked
      - test: quiet
