the id:
  test.nop:
    - name: 5
