there:
  test.succeed_with_changes:
    - creates: /etc/passwd
not there:
  test.succeed_with_changes:
    - creates: /no/such/file
some:
  test.succeed_with_changes:
    - creates:
      - /etc/passwd
      - /no/such/file
