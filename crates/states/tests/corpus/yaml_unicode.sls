größe: test.nop
日本:
  test.nop:
    - require:
      - test: größe
"🎭 puppet": test.succeed_with_changes
