// Replaces the live parts of the page by new ones, every two seconds, as long as the page is live: without it the page reloads
// itself. A box selects all rows of its table, and the key / goes to the field that finds keys.
"use strict";
(() => {
    const every = 2000;
    const state = document.getElementById("live-state");
    const isInUse = part => part.querySelector("table") && part.matches(":hover")
        || part.contains(document.activeElement) || part.querySelector("input:checked");
    async function refresh() {
        if (!document.hidden) {
            try {
                const answer = await fetch(location.href);
                // The session has ended.
                if (answer.redirected) return location.reload();
                if (!answer.ok) throw new Error(answer.status);
                const page = new DOMParser().parseFromString(await answer.text(), "text/html");
                const isOver = !page.getElementById("live-state");
                for (const part of page.querySelectorAll("[data-live]")) {
                    const old = document.getElementById(part.id);
                    // A part that is in use stays, so that no row moves away under the pointer.
                    if (old && (isOver || !isInUse(old))) old.replaceWith(part);
                }
                if (isOver) return state.remove();
                state.textContent = "live";
            } catch {
                state.textContent = "not connected";
            }
        }
        setTimeout(refresh, every);
    }
    if (state) setTimeout(refresh, every);
    document.addEventListener("change", event => {
        if (!event.target.matches("[data-all]")) return;
        for (const box of event.target.closest("table").querySelectorAll("input[name=row]")) {
            box.checked = event.target.checked;
        }
    });
    document.addEventListener("keydown", event => {
        const find = document.getElementById("find");
        if (event.key !== "/" || !find || event.target.matches("input")) return;
        event.preventDefault();
        find.focus();
    });
})();
